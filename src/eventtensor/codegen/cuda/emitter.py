"""Code for a worker that is a block of threads: control flow is the same in all of them, loops over
elements are shared out, and every such loop stands between two barriers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from ...ir.expr import Const, Node, product
from ...ir.tensor import DType
from ..cpp.dialect import Dialect, loop

_HALF = 16  # threads that fold one element of a reduction: LANES of device/numerics.h
_SHORT, _WIDE = 16, 64
_BATCH = 8  # elements of a thread that are loaded together
_TOGETHER = 4  # elements of a thread that are found together in loops over several axes
_MMA = (DType.bf16, DType.f16)

# Lines that end at a barrier whenever the worker goes on behind them.
_MEETS = re.compile(
    r"if \(!\(?(et::cell_in\(.*\) && )?et::(ev_wait|read_tagged\w*)\(.*\) return false;"
)
# Comments, names for places and numbers, and what a worker keeps in registers.
_NAMES = re.compile(r"(const|auto\*) [\w:<>, *]+[ {].*;|//.*|")
_WORDS = re.compile(r"\w+")
# What more lines may hang on, which not all threads come to.
_OPENS = re.compile(r"(if|else|for|while)\b|.*\{$")
_KEPT = (
    "et::task_ready(worker);",
    "et::task_ready_for_pages(worker);",
    "worker.pipeline.task_begin();",
)
_PLAIN = {
    "et::div", "et::mod", "std::min<int64_t>", "std::max<int64_t>", "int64_t", "et::global",
    "et::rsqrt",
}


def _quiet(text: str) -> bool:
    """True if a line touches no memory of tasks: that takes `[`, or a function."""
    if text in _KEPT or text.startswith("//"):
        return True
    plain = set(re.findall(r"([\w:<>]+)\(", text)) <= _PLAIN
    return plain and "[" not in text and _NAMES.fullmatch(text) is not None


@dataclass
class _Loop:
    """A loop over elements that ended at line `end`: its head, what it reads (True: at the own
    index only) and what it assigns."""

    end: int
    head: tuple[tuple[str, ...], tuple[str, ...]]
    reads: dict[str, bool]
    assigns: set[str]

    def takes(self, reads: Mapping[str, bool], assigns: str) -> bool:
        """True if another assignment may follow in each iteration: it reads what the loop assigns
        at the own index only, and assigns what the loop reads nowhere else."""
        forward = all(same or name not in self.assigns for name, same in reads.items())
        return forward and self.reads.get(assigns, True)


@dataclass(frozen=True)
class _Batch:
    """Some elements of a thread: the line that their loop begins at, the one that stores begin at,
    how many there are, the indices of number n. All that they read may be found before the first
    is stored, or (`far`) what lies far away."""

    line: int
    stores: int
    each: int
    indices: str
    far: bool


class BlockDialect(Dialect):
    """`taken` collects what the arena has to hold: extents and element types. A barrier is left out
    where nothing that touches memory stands between it and the one before; waits end with one.
    `inner`: whether other texts take of it too; `far` stands for what is not known yet, whether it
    goes on in device memory. `before`: what it has to hold before lines of a product give room, if
    they always do.
    `plain` are views of tensors whose place is left for the compiler to see.
    `together`: in loops over several axes a thread finds some elements before it stores them.
    `folding`: tiles that some threads may still be at work on; a line that names one, and a block,
    comes after a barrier."""

    function = "__device__ "
    outlined = "__device__ __noinline__ "
    inlined = "__device__ __forceinline__ "  # a worker that has an address lies in memory
    rolled = "ET_ROLLED "
    looks = True

    def __init__(self, threads: int = 256) -> None:
        super().__init__()
        self.threads = threads
        self.taken: list[tuple[Node, str]] = []
        self.before: list[tuple[Node, str]] | None = None
        self.inner, self.far = False, ""
        self.plain: frozenset[str] = frozenset()
        self._met = False
        self.folding: frozenset[str] = frozenset()
        self._told: tuple[Mapping[str, bool], str] | None = None
        self._last: _Loop | None = None
        self.together = False
        self._batch: _Batch | None = None

    def line(self, text: str = "") -> None:
        if self.folding and (_OPENS.match(text) or self.folding & set(_WORDS.findall(text))):
            self.barrier()
        super().line(text)
        self._now(bool(_MEETS.match(text)) or (self._met and _quiet(text)))

    def _now(self, met: bool) -> None:
        self._met = met
        if met:
            self.folding = frozenset()

    def deeper(self) -> None:
        assert not self.folding  # a line that opens something has come behind a barrier
        super().deeper()

    def shallower(self) -> None:
        """What stood deeper may not have been done."""
        super().shallower()
        self._met = False

    def barrier(self) -> None:
        if not self._met:
            super().line("et::sync();")
        self._now(True)

    def apart(self) -> None:
        self._now(False)

    def met(self) -> bool:
        return self._met

    def ends_met(self, text: str) -> None:
        """A line whose last deed is a barrier, or that touches no memory of tasks after one."""
        if self.folding:
            self.barrier()
        super().line(text)
        self._now(True)

    def ends_folding(self, text: str, tiles: Iterable[str]) -> None:
        """A line that makes these tiles, behind which no thread has waited for the others."""
        if self.folding:
            self.barrier()  # all such lines fold through the same memory
        super().line(text)
        self._met, self.folding = False, frozenset(tiles)

    def leading(self) -> AbstractContextManager[None]:
        return self.block("if (et::is_leader())")

    def busy(self, value: bool) -> None:
        self.line(f"et::set_busy(worker, {'true' if value else 'false'});")

    def take(self, name: str, element: str, size: str, extent: Node) -> None:
        met = self._met
        self.line(f"{element}* const {name} = worker.arena.take<{element}{self.far}>({size});")
        self._met = met
        self.taken.append((extent, element))

    def in_tensor(self, name: str, at: str) -> str:
        return at if name in self.plain else f"et::global({at})"

    def matmul_room(self, left: DType, right: DType) -> None:
        """What the warps fold through where they split K (device/cuda/ops/matmul.cuh)."""
        if left is right and left in _MMA:
            self.taken.append((Const(16 * self.threads), "float"))
            self.inner = True

    def folds_together(self, shape: tuple[Node, ...], axis: int) -> bool:
        """Not where threads have an element of their own and it is made of few, nor where
        neighbours would read far apart although enough of them could each fold one."""
        reduced, last = shape[axis], shape[-1]
        results = product(shape[:axis] + shape[axis + 1 :])
        many = not isinstance(results, Const) or results.value >= self.threads
        if many and isinstance(reduced, Const) and reduced.value <= _SHORT:
            return False
        wide = isinstance(last, Const) and last.value >= _WIDE
        return axis == len(shape) - 1 or not wide

    def shared_loop(self, var: str, size: str) -> str:
        step = f"{var} += et::num_threads()"
        return f"{self.rolled}for (int64_t {var} = et::thread_rank(); {var} < {size}; {step})"

    def next_loop(self, reads: Mapping[str, bool], assigns: str) -> None:
        self._told = (reads, assigns)

    @contextmanager
    def elements(
        self, names: Sequence[str], sizes: Sequence[str], independent: bool,
        serial: frozenset[int],
    ) -> Iterator[None]:
        """One loop over the number of an element. The barrier before it is for scalars that a
        thread still reads from what this loop assigns; the one after it for those who come next.
        Loops over the same elements, in which no data crosses threads, are one."""
        told, self._told = self._told, None
        head = (tuple(names), tuple(sizes))
        if told is not None and self._joins(head, *told):
            with self._reopened(*told):
                yield
            return
        spread = [k for k in range(len(names)) if k not in serial]
        if self.together and len(spread) == len(names) > 1:
            with self._found_together(names, sizes):
                yield
            return
        with self._each(names, sizes, spread):
            for k in sorted(serial):
                self.line(loop(names[k], sizes[k]))
                self.deeper()
            yield
            for _ in serial:
                self.shallower()
        if told is not None and spread and not serial:
            self._last = _Loop(len(self._lines), head, dict(told[0]), {told[1]})

    def _joins(
        self, head: tuple[tuple[str, ...], tuple[str, ...]], reads: Mapping[str, bool], assigns: str
    ) -> bool:
        last = self._last
        return last is not None and last.end == len(self._lines) and last.head == head \
            and last.takes(reads, assigns)

    @contextmanager
    def _reopened(self, reads: Mapping[str, bool], assigns: str) -> Iterator[None]:
        """Go on in the loop that has just ended."""
        last = self._last
        assert last is not None
        del self._lines[-2:]  # its end, and the barrier
        self.deeper()
        yield
        self.shallower()
        self.line("}")
        self.barrier()
        for name, same in reads.items():
            last.reads[name] = last.reads.get(name, True) and same
        last.assigns.add(assigns)
        last.end = len(self._lines)

    @contextmanager
    def _each(
        self, names: Sequence[str], sizes: Sequence[str], spread: list[int]
    ) -> Iterator[None]:
        if len(spread) > 1:
            with self._spread(names, sizes, spread):
                yield
            return
        self.barrier()
        each = self._each_has(sizes[spread[0]]) if spread else 0
        if each > 1:
            with self._some(names[spread[0]], each):
                yield
        else:
            head = self.shared_loop(names[spread[0]], sizes[spread[0]]) if spread else ""
            with self.block(head) if spread else self.leading():
                yield
        self.barrier()

    def _each_has(self, size: str) -> int:
        """How many elements a thread has, if all have as many and these fit registers; else 0."""
        each, rest = divmod(int(size), self.threads) if size.isdecimal() else (0, 1)
        return each if rest == 0 and each <= _BATCH else 0

    @contextmanager
    def _some(self, name: str, each: int) -> Iterator[None]:
        """A loop over the few elements of a thread, unrolled."""
        begin, index = (
            len(self._lines),
            f"const int64_t {name} = et::thread_rank() + n * et::num_threads();",
        )
        self._batch = _Batch(begin, begin + 2, each, index, far=True)
        with self.block(f"ET_UNROLLED for (int n = 0; n < {each}; ++n)"):
            self.line(index)
            yield
        self._batch = None

    def assign(self, name: str, kind: str, place: str, text: str, far: bool) -> None:
        """Stores of one element would hold up the loads of the next."""
        some = self._batch
        if some is None or some.stores != len(self._lines) or (some.far and not far):
            super().assign(name, kind, place, text, far)
            return
        indent = self._lines[some.line].split("ET_UNROLLED")[0]
        given = f"[&](int n) {{ {some.indices} return {text}; }}"
        self._lines.insert(
            some.line, f"{indent}const et::Batch<{kind}, {some.each}> {name}_all({given});"
        )
        super().assign(name, kind, place, f"{name}_all.at[n]", far)

    @contextmanager
    def folds(self, names: Sequence[str], sizes: Sequence[str]) -> Iterator[str]:
        """Whole warps fold: what lies beyond the last element is another's once more."""
        self.barrier()
        if names:
            each = f"et::Each<{len(names)}, {_HALF}> t1({', '.join(sizes)})"
            with self.block(f"for ({each}; t1.more_in_warp(); t1.next())"):
                shown = ", ".join(f"{name} = t1.held({k})" for k, name in enumerate(names))
                self.line(f"const int64_t {shown};")
                yield "t1.is_leader()"
        else:
            with self.block(f"if (et::thread_rank() < {2 * _HALF})"):
                yield "et::is_leader()"
        self.barrier()

    @contextmanager
    def _found_together(self, names: Sequence[str], sizes: Sequence[str]) -> Iterator[None]:
        """One loop over the elements of several axes, some of a thread together: they lie apart
        along the first axis, so that neighbours in the block have neighbours every time. Those
        beyond the last are found like it, but not stored."""
        self.barrier()
        apart = f"({sizes[0]} + {_TOGETHER - 1}) / {_TOGETHER}"
        each = f"et::Each<{len(names)}> t1({', '.join([apart, *sizes[1:]])})"
        with self.block(f"for ({each}; t1.more(); t1.next())"):
            at = f"t1[0] + n * ({apart})"
            others = ", ".join(f"{name} = t1[{k}]" for k, name in enumerate(names[1:], 1))
            held = f"std::min<int64_t>({at}, {sizes[0]} - 1)"
            found, begin = f"const int64_t {names[0]} = {held}, {others};", len(self._lines)
            self._batch = _Batch(begin, begin + 3, _TOGETHER, found, far=False)
            with self.block(f"ET_UNROLLED for (int n = 0; n < {_TOGETHER}; ++n)"):
                self.line(f"const int64_t {names[0]} = {at}, {others};")
                self.line(f"if ({names[0]} >= {sizes[0]}) break;")
                yield
            self._batch = None
        self.barrier()

    @contextmanager
    def _spread(
        self, names: Sequence[str], sizes: Sequence[str], axes: Sequence[int]
    ) -> Iterator[None]:
        """One loop over the elements of several axes, between barriers."""
        self.barrier()
        extents = ", ".join(sizes[k] for k in axes)
        each = f"et::Each<{len(axes)}> t1({extents})"
        with self.block(f"for ({each}; t1.more(); t1.next())"):
            shown = ", ".join(f"{names[k]} = t1[{at}]" for at, k in enumerate(axes))
            self.line(f"const int64_t {shown};")
            yield
        self.barrier()
