"""The kernels of a runner: each takes some steps. They are built at the same time, and nobody waits
for one before its first step; or they come from an artifact."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ..compiler import planned
from ..errors import KernelClosed
from ..kernel import Kernel
from ..lang.program import Program
from ..runtime.cpu_artifact import LoadedThreads
from ..runtime.cuda.loaded import LoadedKernel
from ..runtime.loaded import load

# What a runner needs of a kernel, they all have.
AnyKernel = Kernel | LoadedKernel | LoadedThreads


@dataclass(frozen=True)
class KernelShape:
    """Of up to so many rows; `decode_only`: in which every row has a request of its own, and gets a
    token."""

    rows: int
    decode_only: bool = False

    def has(self, step: KernelShape) -> bool:
        return step.rows <= self.rows and (step.decode_only or not self.decode_only)


def select_kernel(kernels: Iterable[KernelShape], step: KernelShape) -> KernelShape:
    """Of those that take a step the one made for the fewest."""
    return min((s for s in kernels if s.has(step)), key=lambda s: (s.rows, not s.decode_only))


class RunnerKernels:
    """`programs` by the steps that they take, the one first that is needed first."""

    def __init__(
        self, programs: Mapping[KernelShape, Program], target: str, options: Mapping[str, Any]
    ) -> None:
        self._made: dict[KernelShape, Future[AnyKernel]] = {}
        self._closed = False
        builders = ThreadPoolExecutor(max(1, len(programs)), thread_name_prefix="build")
        try:
            for steps, program in programs.items():
                self._made[steps] = builders.submit(planned(program, target, options))
        except BaseException:
            self.close()
            raise
        finally:
            builders.shutdown(wait=False)

    @classmethod
    def load(cls, folders: Mapping[KernelShape, Path], options: Mapping[str, Any]) -> Self:
        """Those of artifacts, by the steps that they take."""
        found = cls({}, "", {})
        for steps, folder in folders.items():
            found._made[steps] = Future()
            found._made[steps].set_result(load(folder, **options))
        return found

    def save(self, folders: Mapping[KernelShape, Path]) -> None:
        for steps, folder in folders.items():
            kernel = self._made[steps].result()
            assert isinstance(kernel, Kernel), "what was loaded is saved already"
            kernel.save(folder)

    def of(self, step: KernelShape) -> AnyKernel:
        """The one that takes a step; waits until it is built."""
        if self._closed:
            raise KernelClosed("the runner is closed", hint="an error of a launch closes it too")
        return self._made[select_kernel(self._made, step)].result()

    def all(self) -> list[AnyKernel]:
        return [made.result() for made in self._made.values()]

    def close(self) -> None:
        """Waits for those that are being built. One that fails to close keeps none from it."""
        self._closed = True
        with ExitStack() as closing:
            for made in self._made.values():
                if made.exception() is None:
                    closing.callback(made.result().close)
