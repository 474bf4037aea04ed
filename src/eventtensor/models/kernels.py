"""The kernels of a runner: each takes steps of up to so many rows. They are built at the same time,
and nobody waits for one before its first step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ..compiler import run_passes
from ..config import Options
from ..errors import BadOption, KernelClosed
from ..kernel import BACKENDS, Kernel
from ..lang.program import Program


class Kernels:
    """`programs` by the most rows that they take, the one first that is needed first."""

    def __init__(
        self, programs: Mapping[int, Program], target: str, options: Mapping[str, Any]
    ) -> None:
        self._made: dict[int, Future[Kernel]] = {}
        self._closed = False
        builders = ThreadPoolExecutor(len(programs), thread_name_prefix="build")
        try:
            for most, program in programs.items():
                self._made[most] = builders.submit(planned(program, target, options))
        except BaseException:
            self.close()
            raise
        finally:
            builders.shutdown(wait=False)

    def of(self, rows: int) -> Kernel:
        """Of those that take so many rows the one made for the fewest; waits until it is built."""
        if self._closed:
            raise KernelClosed("the runner is closed", hint="an error of a launch closes it too")
        return self._made[min(most for most in self._made if rows <= most)].result()

    def close(self) -> None:
        """Waits for those that are being built."""
        self._closed = True
        for made in self._made.values():
            if made.exception() is None:
                made.result().close()


def planned(program: Program, target: str, options: Mapping[str, Any]) -> Callable[[], Kernel]:
    """What builds the kernel of a program, on any thread. Proof and plan are made here and now: isl
    has one context, with one bound on its work, for the whole process."""
    if target not in BACKENDS:
        raise BadOption(f"unknown target {target!r}", hint=f"one of {', '.join(BACKENDS)}")
    named: dict[str, Any] = {
        k: tuple(sorted(v.items())) if isinstance(v, Mapping) else v for k, v in options.items()
    }
    known = Options(target, **named)
    state = run_passes(program, known)
    report, plan = state.report, state.plan
    assert report is not None
    if not report.ok:
        raise report.problems[0].error()
    assert plan is not None
    return lambda: Kernel(plan, known, report)
