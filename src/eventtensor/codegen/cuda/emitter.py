"""Code for a worker that is a block of threads: control flow is the same in all of them, loops over
elements are shared out, and every such loop stands between two barriers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from ...ir.expr import Node
from ..cpp.dialect import Dialect, loop
from ..cpp.expr import paren


class BlockDialect(Dialect):
    """`taken` collects what the arena has to hold: extents and element types. A barrier is left out
    where nothing that touches memory stands between it and the one before."""

    function = "__device__ "
    hand_tuned = "cuda"

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[tuple[Node, str]] = []
        self._met = False

    def line(self, text: str = "") -> None:
        super().line(text)
        self._met = False

    def barrier(self) -> None:
        if not self._met:
            self.line("et::sync();")
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

    def shared_loop(self, var: str, size: str) -> str:
        return f"for (int64_t {var} = et::lane(); {var} < {size}; {var} += et::lanes())"

    @contextmanager
    def elements(
        self, names: Sequence[str], sizes: Sequence[str], independent: bool,
        serial: frozenset[int],
    ) -> Iterator[None]:
        """One loop over the number of an element. The barrier before it is for scalars that a
        thread still reads from what this loop assigns; the one after it for those who come next."""
        spread = [k for k in range(len(names)) if k not in serial]
        self.barrier()
        with self._each(names, sizes, spread):
            for k in sorted(serial):
                self.line(loop(names[k], sizes[k]))
                self.deeper()
            yield
            for _ in serial:
                self.shallower()
        self.barrier()

    @contextmanager
    def _each(
        self, names: Sequence[str], sizes: Sequence[str], spread: list[int]
    ) -> Iterator[None]:
        if not spread:
            with self.leading():
                yield
            return
        if len(spread) == 1:
            with self.block(self.shared_loop(names[spread[0]], sizes[spread[0]])):
                yield
            return
        total = " * ".join(paren(sizes[k]) for k in spread)
        with self.block(self.shared_loop("t1", total)):
            for at, k in enumerate(spread):
                after = " * ".join(paren(sizes[j]) for j in spread[at + 1 :])
                text = f"t1 / ({after})" if after else "t1"
                text = f"{text} % {paren(sizes[k])}" if at else text
                self.line(f"const int64_t {names[k]} = {text};")
            yield
