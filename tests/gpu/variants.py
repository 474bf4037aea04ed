"""Every legal way to hand a plan's data over, from one proof."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from eventtensor.codegen.cuda import generate
from eventtensor.compiler import PASSES, State, run_passes
from eventtensor.config import Options
from eventtensor.errors import BadOption
from eventtensor.ir.plan import HandoffKind, Plan
from eventtensor.runtime.cuda.cuda_kernel import CudaKernel
from eventtensor.runtime.cuda.driver import device
from tests.gpu.child import answers

COMPILE = Path(__file__).parent / "compile_once.py"
SCHEDULES = ("static", "ticket", "push")
HANDOFFS = ("auto", *(kind.value for kind in HandoffKind))


def proved(program: Any, schedule: str, stream: bool = True) -> State:
    """A state that all passes have seen."""
    state = run_passes(program, Options(target="cuda", schedule=schedule, stream=stream))
    assert state.report is not None and state.report.ok, str(state.report)
    return state


def plans(state: State) -> Iterator[tuple[str, Plan]]:
    """(hand-off, plan) for each kind that is legal somewhere in the program."""
    names = [name for name, _ in PASSES]
    late = PASSES[names.index("handoff") :]
    for kind in HANDOFFS:
        again = replace(state, options=replace(state.options, handoff=kind))
        try:
            for _, step in late:
                step(again)
        except BadOption:
            continue
        assert again.plan is not None
        yield kind, again.plan


def compile_apart(plan: Plan, options: Options) -> None:
    """Fills the cache from a process of its own."""
    target = device(options.device).target
    made = generate(plan, target, options.debug, options.trace)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source.cu"
        source.write_text(made.text)
        words = (str(source), plan.program.name, target.architecture)
        answers([sys.executable, str(COMPILE), *words], seconds=50)


@contextmanager
def cuda_kernel(plan: Plan, **options: Any) -> Iterator[CudaKernel]:
    """A compiled kernel, closed at the end."""
    chosen = Options(target="cuda", **options)
    if chosen.debug:
        compile_apart(plan, chosen)
    kernel = CudaKernel(plan, chosen)
    try:
        yield kernel
    finally:
        kernel.close()
