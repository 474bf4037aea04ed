"""The kernels of a runner: each takes steps of up to so many rows. They are built at the same time,
and nobody waits for one before its first step; or they come from an artifact."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
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


class Kernels:
    """`programs` by the most rows that they take, the one first that is needed first."""

    def __init__(
        self, programs: Mapping[int, Program], target: str, options: Mapping[str, Any]
    ) -> None:
        self._made: dict[int, Future[AnyKernel]] = {}
        self._closed = False
        builders = ThreadPoolExecutor(max(1, len(programs)), thread_name_prefix="build")
        try:
            for most, program in programs.items():
                self._made[most] = builders.submit(planned(program, target, options))
        except BaseException:
            self.close()
            raise
        finally:
            builders.shutdown(wait=False)

    @classmethod
    def load(cls, folders: Mapping[int, Path], options: Mapping[str, Any]) -> Self:
        """Those of artifacts, by the most rows that they take."""
        found = cls({}, "", {})
        for most, folder in folders.items():
            found._made[most] = Future()
            found._made[most].set_result(load(folder, **options))
        return found

    def save(self, folders: Mapping[int, Path]) -> None:
        for most, folder in folders.items():
            kernel = self._made[most].result()
            assert isinstance(kernel, Kernel), "what was loaded is saved already"
            kernel.save(folder)

    def of(self, rows: int) -> AnyKernel:
        """Of those that take so many rows the one made for the fewest; waits until it is built."""
        if self._closed:
            raise KernelClosed("the runner is closed", hint="an error of a launch closes it too")
        return self._made[min(most for most in self._made if rows <= most)].result()

    def close(self) -> None:
        """Waits for those that are being built. One that fails to close keeps none from it."""
        self._closed = True
        with ExitStack() as closing:
            for made in self._made.values():
                if made.exception() is None:
                    closing.callback(made.result().close)
