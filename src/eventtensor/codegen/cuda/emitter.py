"""Code for a worker that is a block of threads: control flow is the same in all of them, loops over
elements are shared out, and every such loop stands between two barriers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from ...ir.expr import Const, Node, product
from ...ir.tensor import DType
from ..cpp.dialect import Dialect, loop

_HALF = 16  # threads that fold one element of a reduction: LANES of device/numerics.h
_SHORT, _WIDE = 8, 64
_MMA = (DType.bf16, DType.f16)


class BlockDialect(Dialect):
    """`taken` collects what the arena has to hold: extents and element types. A barrier is left out
    where nothing that touches memory stands between it and the one before."""

    function = "__device__ "
    outlined = "__device__ __noinline__ "
    rolled = "ET_ROLLED "
    hand_tuned = "cuda"

    def __init__(self, threads: int = 256) -> None:
        super().__init__()
        self.threads = threads
        self.taken: list[tuple[Node, str]] = []
        self._met = False

    def line(self, text: str = "") -> None:
        super().line(text)
        self._met = False

    def barrier(self) -> None:
        if not self._met:
            self.line("et::sync();")
        self._met = True

    def met(self) -> bool:
        return self._met

    def ends_met(self, text: str) -> None:
        """A line whose last deed is a barrier, or that touches no memory of tasks after one."""
        super().line(text)
        self._met = True

    def leading(self) -> AbstractContextManager[None]:
        return self.block("if (et::leads())")

    def busy(self, value: bool) -> None:
        self.line(f"et::set_busy(worker, {'true' if value else 'false'});")

    def take(self, name: str, element: str, size: str, extent: Node) -> None:
        met = self._met
        super().take(name, element, size, extent)
        self._met = met
        self.taken.append((extent, element))

    def matmul_room(self, left: DType, right: DType) -> None:
        """What the warps fold through where they split K (device/cuda/matmul.cuh)."""
        if left is right and left in _MMA:
            self.taken.append((Const(16 * self.threads), "float"))

    def folds_together(self, shape: tuple[Node, ...], axis: int) -> bool:
        """Not where all threads have an element of their own and it is made of few, nor where
        neighbours would read far apart although enough of them could each fold one."""
        reduced, last = shape[axis], shape[-1]
        results = product(shape[:axis] + shape[axis + 1 :])
        many = isinstance(results, Const) and results.value >= self.threads
        if many and isinstance(reduced, Const) and reduced.value <= _SHORT:
            return False
        wide = isinstance(last, Const) and last.value >= _WIDE
        return axis == len(shape) - 1 or not wide

    def shared_loop(self, var: str, size: str) -> str:
        step = f"{var} += et::lanes()"
        return f"{self.rolled}for (int64_t {var} = et::lane(); {var} < {size}; {step})"

    @contextmanager
    def elements(
        self, names: Sequence[str], sizes: Sequence[str], independent: bool,
        serial: frozenset[int],
    ) -> Iterator[None]:
        """One loop over the number of an element. The barrier before it is for scalars that a
        thread still reads from what this loop assigns; the one after it for those who come next."""
        spread = [k for k in range(len(names)) if k not in serial]
        with self._each(names, sizes, spread):
            for k in sorted(serial):
                self.line(loop(names[k], sizes[k]))
                self.deeper()
            yield
            for _ in serial:
                self.shallower()

    @contextmanager
    def _each(
        self, names: Sequence[str], sizes: Sequence[str], spread: list[int]
    ) -> Iterator[None]:
        if len(spread) > 1:
            with self._spread(names, sizes, spread, f"et::Each<{len(spread)}>"):
                yield
            return
        self.barrier()
        head = self.shared_loop(names[spread[0]], sizes[spread[0]]) if spread else ""
        with self.block(head) if spread else self.leading():
            yield
        self.barrier()

    @contextmanager
    def folds(self, names: Sequence[str], sizes: Sequence[str]) -> Iterator[None]:
        if names:
            each = f"et::Each<{len(names)}, {_HALF}>"
            with self._spread(names, sizes, range(len(names)), each):
                yield
            return
        self.barrier()
        with self.block(f"if (et::lane() < {_HALF})"):
            yield
        self.barrier()

    @contextmanager
    def _spread(
        self, names: Sequence[str], sizes: Sequence[str], axes: Sequence[int], each: str
    ) -> Iterator[None]:
        """One loop over the elements of several axes, between barriers."""
        self.barrier()
        extents = ", ".join(sizes[k] for k in axes)
        with self.block(f"for ({each} t1({extents}); t1.more(); t1.next())"):
            shown = ", ".join(f"{names[k]} = t1[{at}]" for at, k in enumerate(axes))
            self.line(f"const int64_t {shown};")
            yield
        self.barrier()
