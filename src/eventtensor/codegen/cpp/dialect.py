"""How a worker runs generated code, as an emitter: here a worker is one thread, so loops are plain,
barriers are nothing and every thread leads. codegen/cuda overrides this for the threads of a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from ...ir.expr import Node
from ...ir.tensor import DType
from ..emitter import Emitter


def loop(var: str, size: str) -> str:
    """Head of a loop that every thread of the worker runs as a whole."""
    return f"for (int64_t {var} = 0; {var} < {size}; ++{var})"


class Dialect(Emitter):
    """Lines of C++ for a worker that is one thread."""

    threads = 1  # of a worker
    function = ""  # stands before a function's type
    inlined = ""  # the same, for one that has to be part of its caller
    rolled = ""  # stands before a loop that gains nothing from being unrolled
    outlined = ""  # the same, for one with several call sites and no part in a body

    def barrier(self) -> None:
        """All threads of the worker meet, and see what each has written."""

    def apart(self) -> None:
        """Of what was written before nothing is known."""

    def met(self) -> bool:
        """True if nothing that touches memory was written since the last barrier."""
        return True

    def leading(self) -> AbstractContextManager[None]:
        """What is written inside, one thread of the worker does."""
        return nullcontext()

    def busy(self, value: bool) -> None:
        """Tell the others that this worker will make progress."""
        text = "true" if value else "false"
        self.line(f"worker.busy.store({text}, std::memory_order_relaxed);")

    def take(self, name: str, element: str, size: str, extent: Node) -> None:
        """Declare `name` as room for `size` (= `extent`) elements in the worker's arena."""
        self.line(f"{element}* const {name} = worker.arena.take<{element}>({size});")

    def in_tensor(self, name: str, at: str) -> str:
        """A pointer to an element of a tensor, for the view of this name."""
        return at

    def matmul_room(self, left: DType, right: DType) -> None:
        """Told what a matmul multiplies, for the room that et::matmul takes by itself."""

    def folds_together(self, shape: tuple[Node, ...], axis: int) -> bool:
        """True if several threads fold an element of a reduction of `shape` over `axis`."""
        return False

    def shared_loop(self, var: str, size: str) -> str:
        """Head of a loop whose iterations the worker's threads share."""
        return loop(var, size)

    looks = False  # whether the threads of a worker can look at many cells at once

    def assign(self, name: str, kind: str, place: str, text: str, far: bool) -> None:
        """Write an element of `name`, of this kind, in the loop that has just begun. What it is
        made of, maybe from `far` memory, may be loaded for all elements of a thread first."""
        self.line(f"{place} = {text};")

    def next_loop(self, reads: Mapping[str, bool], assigns: str) -> None:
        """Told before `elements`: the buffers that are read (True: at the own index only), and the
        one that is assigned, at the own index."""

    @contextmanager
    def elements(
        self, names: Sequence[str], sizes: Sequence[str], independent: bool,
        serial: frozenset[int],
    ) -> Iterator[None]:
        """Loops over all elements of a tile. `independent`: each is touched once; the axes in
        `serial` may meet one element twice, and run in order."""
        for k, (name, size) in enumerate(zip(names, sizes, strict=True)):
            if independent and k == len(names) - 1:
                self.line("ET_INDEPENDENT")
            self.line(self.shared_loop(name, size))
            self.deeper()
        yield
        for _ in names:
            self.shallower()

    def folds(
        self, names: Sequence[str], sizes: Sequence[str]
    ) -> AbstractContextManager[str]:
        """Loops over all elements of a reduction's result, where threads fold them together. Gives
        the condition of the one that stores it."""
        raise AssertionError("a worker with one thread folds alone")
