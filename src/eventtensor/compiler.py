"""The compiler driver: the list of passes, `compile` and `check`.

Each pass reads and extends one `State`. The passes themselves are in analysis and schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from threading import RLock
from typing import Any

from .analysis.check import precheck, verify
from .analysis.check_report import CheckReport, Kind, Problem, make_report
from .analysis.derive import Derived, derive
from .analysis.event_maps import Events
from .analysis.order_check import without_events
from .analysis.reuse import is_iteration_private, shared_scratch, without_axes
from .config import Options
from .errors import BadOption, NoDevice, Unproved
from .ignored_arguments import ignore_arguments
from .ir.plan import CallPlan, HandoffKind, Plan
from .ir.program import Program
from .kernel import BACKENDS, Kernel
from .lang.program_builder import Program as Builder
from .progress import doing, in_pass, shown
from .runtime.cuda.driver import device as find_gpu
from .schedule.handoff import decide
from .schedule.handoff_names import with_present_names
from .schedule.memory import layout, word_layout
from .schedule.push_groups import schedules
from .schedule.select import Choice, mark_pushed, select
from .schedule.weight_prefetch import streams
from .targets.devices import DEFAULT_DEVICE, find_device
from .targets.target import CudaTarget


@dataclass
class State:
    """The results of the passes so far."""

    options: Options
    program: Program
    gpu: CudaTarget  # for which the plan is, if it is for a GPU
    choices: dict[str, Choice] | None = None
    derived: Derived | None = None
    events: Events | None = None
    report: CheckReport | None = None
    plan: Plan | None = None


def _select(s: State) -> None:
    """Select a schedule for each call, with its reason."""
    s.choices = select(s.program, s.options, s.gpu)
    s.program = mark_pushed(s.program, s.choices)


def _precheck(s: State) -> None:
    """Check that run-time data which decides indices has bounds."""
    s.report = precheck(s.program)


def _derive(s: State) -> None:
    """Derive event tensors, and the wait, notify and inverse maps."""
    s.derived = derive(s.program)
    s.events = s.derived.uses(s.program)


def _verify(s: State) -> None:
    """Prove the program with exactly these events."""
    assert s.derived is not None
    s.report = verify(s.program, s.derived, s.events)


def _plan(s: State) -> None:
    """Make the plan: queues of push calls, shifts of static tiles, waits and notifies."""
    assert s.derived is not None and s.events is not None and s.choices is not None
    how = schedules(s.program, s.events, s.choices)
    d = s.derived
    calls = tuple(
        CallPlan(n, d.headers[n], d.waits[n], d.notifies[n], how[n], d.notes[n])
        for n in (p.call.name for p in s.program.calls)
    )
    s.plan = Plan(s.program, d.events, calls, d.releases)


def _stream(s: State) -> None:
    """Choose the operands that the producer warp of a GPU kernel loads ahead of the waits."""
    assert s.plan is not None and s.report is not None
    if s.options.target == "cuda" and s.report.ok:
        found = streams(s.plan, s.options.stream, s.options.debug, s.gpu)
        s.plan = replace(s.plan, streams=found)


def _handoff(s: State) -> None:
    """Choose how each edge is realised on a GPU. Other targets count."""
    assert s.derived is not None and s.events is not None and s.plan is not None
    assert s.report is not None
    if s.options.target != "cuda" or not s.report.ok:
        return
    found = decide(s.plan, s.derived, s.events, s.options.handoff, s.gpu)
    s.plan = replace(s.plan, handoffs=found)


def _memory(s: State) -> None:
    """Lay out scratch and tagged tensors. Iterations share scratch where that is legal. Debug
    builds and the interpreter check for unwritten reads, so there they do not. Tensors with bulk
    copies do not either, because their alignment depends on the axis."""
    assert s.derived is not None and s.plan is not None and s.report is not None
    flagged = s.plan.tagged_tensors
    program, axes = s.program, dict[str, int]()
    if s.report.ok and not s.options.debug and s.options.target != "interp":
        gone = {
            h.event
            for h in s.plan.handoffs
            if h.kind in (HandoffKind.tagged, HandoffKind.recompute)
        }
        order = without_events(s.derived, frozenset(gone))
        copied = {t for h in s.plan.handoffs if h.kind is HandoffKind.bulk for t in h.tensors}
        axes = shared_scratch(program, order, flagged | copied)
        program = without_axes(program, axes)
    buffers, workspace = layout(program, flagged)
    words, word_bytes = word_layout(program, flagged)
    private = frozenset(
        name for name, k in axes.items() if is_iteration_private(s.program, name, k)
    )
    s.plan = replace(
        s.plan,
        program=program,
        shared_scratch=tuple(axes),
        iteration_private=private,
        buffers=buffers,
        workspace=workspace,
        words=words,
        word_bytes=word_bytes,
    )


PASSES = (
    ("select", _select),
    ("precheck", _precheck),
    ("derive", _derive),
    ("verify", _verify),
    ("plan", _plan),
    ("stream", _stream),
    ("handoff", _handoff),
    ("memory", _memory),
)


# isl has one context and one budget for the whole process.
_ISL = RLock()


def gpu_of(options: Options) -> CudaTarget:
    """The GPU of a plan: the one that the options name, or the one with their number. The default
    if there is none."""
    if options.target != "cuda":
        return DEFAULT_DEVICE
    if isinstance(options.device, str):
        return find_device(options.device)
    try:
        return find_gpu(options.device).target
    except NoDevice:
        return DEFAULT_DEVICE


def run_passes(
    program: Builder | Program, options: Options, gpu: CudaTarget | None = None
) -> State:
    """Run all passes. If precheck fails there are no events and no plan. A refuted program has a
    plan, so that its witnesses can be replayed."""
    built = program.build() if isinstance(program, Builder) else program
    state = State(options, built, gpu or gpu_of(options))
    with shown(f"program '{built.name}'"), _ISL:
        for name, step in PASSES:
            in_pass(name)
            step(state)
            if state.derived is None and state.report is not None and not state.report.ok:
                break
    return state


def check(program: Builder | Program, schedule: str = "auto") -> CheckReport:
    """Prove a program: status, problems with witnesses, obligations on run-time data."""
    try:
        report = run_passes(program, Options(schedule=schedule)).report
    except Unproved as e:
        return make_report([Problem(Kind.unproved, e.message, e.place, e.hint)], [])
    assert report is not None
    return report


def read_options(target: str, options: Mapping[str, Any]) -> Options:
    """The options of a user. A table of names becomes pairs."""
    if target not in BACKENDS:
        raise BadOption(f"unknown target {target!r}", hint=f"one of {', '.join(BACKENDS)}")
    pairs: dict[str, Any] = {k: tuple(sorted(v.items())) if isinstance(v, Mapping) else v
                             for k, v in options.items()}
    if "handoff" in pairs:
        pairs["handoff"] = with_present_names(pairs["handoff"])
    return Options(target, **pairs)


def planned(
    program: Builder | Program, target: str, options: Mapping[str, Any]
) -> Callable[[], Kernel]:
    """Prove and plan a program. Return a function that builds its kernel on any thread."""
    known = read_options(target, options)
    state = run_passes(program, known)
    report, plan = state.report, state.plan
    assert report is not None
    if not report.ok:
        raise report.error()
    assert plan is not None
    proved = state.program

    def built() -> Kernel:
        with shown(f"program '{proved.name}'"):
            doing(f"code for target {target} is generated and built")
            return Kernel(proved, plan, known, report)

    return built


@ignore_arguments("prefetch")
def compile(
    program: Builder | Program,
    target: str = "cpu",
    schedule: str | Mapping[str, str] = "auto",
    workers: int = 0,
    debug: bool = False,
    trace: bool = False,
    handoff: str | Mapping[str, str] = "auto",
    stream: bool = True,
    device: int | str = 0,
) -> Kernel:
    """Derive, prove, schedule and build a program for a target, once for all sizes. `handoff` (for
    target cuda) is counter, same_worker, tagged, bulk, tagged_index or recompute. For all events it
    is used wherever it is legal; for a named event it must be legal. `device` is a GPU of this
    machine by its number, or a kind of GPU by its name (`h200`), for which no GPU is needed."""
    return planned(
        program,
        target,
        {
            "schedule": schedule,
            "workers": workers,
            "debug": debug,
            "trace": trace,
            "handoff": handoff,
            "stream": stream,
            "device": device,
        },
    )()
