"""`et.explain`: the plan of a program, the bodies of its tasks, or the source of its kernel.

The plan has grids, events, proof, schedules and memory. Kernel IR has the bodies behind its passes.
The source is the one that `compile` builds, byte for byte. Nothing is built here, and no GPU is
needed for a GPU by its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .analysis.check_report import CheckReport
from .codegen.cpp.kernel import Flavour, KernelWriter
from .codegen.cuda.kernel import BlockWriter
from .compiler import State, gpu_of, read_options, run_passes
from .config import Options
from .errors import BadOption
from .ir.expr import Node, text
from .ir.plan import CallPlan, Handoff, Nest, Plan, Stream
from .ir.program import PlacedCall, Program
from .ir.text import nest_axis_text
from .ir.walk import evaluate
from .kernel import Kernel
from .kernel_ir.kernel_text import function_text
from .kernel_ir.statements import Function
from .lang.program_builder import Program as Builder
from .runtime.cpu_kernel import generate_source
from .runtime.cuda.cuda_kernel import generate_source as generate_cuda_source
from .targets.target import CudaTarget

STAGES = ("plan", "kernel_ir", "source")


def explain(
    what: Builder | Program | Kernel,
    schedule: str | Mapping[str, str] = "auto",
    target: str = "cpu",
    handoff: str | Mapping[str, str] = "auto",
    device: int | str = 0,
    stage: str | None = None,
    *,
    debug: bool = False,
    trace: bool = False,
    stream: bool = True,
) -> str:
    """The text of a stage: `plan`, the bodies of tasks in `kernel_ir`, or the `source` that
    `compile` builds with these options.
    Without a stage it is the plan, and for a kernel, which has its own options, its source too. A
    GPU by its name need not be here. A number without a GPU means an H200."""
    if stage is not None and stage not in STAGES:
        raise BadOption(f"unknown stage {stage!r}", hint=f"one of {', '.join(STAGES)}")
    if isinstance(what, Kernel):
        return _kernel_text(what, stage)
    options = read_options(target, {
        "schedule": schedule, "handoff": handoff, "device": device, "debug": debug, "trace": trace,
        "stream": stream})
    if stage == "kernel_ir":
        _check_has_source(target)
        return _kernel_ir_text(*_proved(run_passes(what, options)), options)
    if stage != "source":
        return _plan_text(run_passes(what, options))
    _check_has_source(target)
    return _source_text(run_passes(what, options), options)


def _kernel_text(kernel: Kernel, stage: str | None) -> str:
    if stage == "kernel_ir":
        _check_has_source(kernel.options.target)
        return _kernel_ir_text(kernel.plan, gpu_of(kernel.options), kernel.options)
    if stage == "source":
        _check_has_source(kernel.options.target)
        return kernel.source
    lines = list(_plan_lines(kernel.plan, kernel.report, kernel.options))
    if stage is None and kernel.source:
        lines += ["", "source:", kernel.source]
    return "\n".join(lines)


def _check_has_source(target: str) -> None:
    if target == "interp":
        raise BadOption("target 'interp' has no source: it runs the plan itself",
                        hint="stage='plan', or target='cpu' or 'cuda'")


def _plan_text(state: State) -> str:
    assert state.report is not None
    if state.plan is None:
        return f"program {state.program.name}: {state.report}"
    return "\n".join(_plan_lines(state.plan, state.report, state.options))


def _source_text(state: State, options: Options) -> str:
    """The source that the back end of the target compiles."""
    plan, gpu = _proved(state)
    if options.target == "cpu":
        return generate_source(plan, options)
    return generate_cuda_source(plan, options, gpu).text


def _proved(state: State) -> tuple[Plan, CudaTarget]:
    report, plan = state.report, state.plan
    assert report is not None
    if not report.ok:
        raise report.error()
    assert plan is not None
    return plan, state.gpu


def _kernel_ir_text(plan: Plan, gpu: CudaTarget, options: Options) -> str:
    """The bodies of tasks; of those that are text no more than why."""
    flavour = Flavour(options.debug, options.trace)
    writer = (
        KernelWriter(plan, flavour) if options.target == "cpu" else BlockWriter(plan, gpu, flavour)
    )
    writer.text()
    return "\n".join(
        function_text(b.code)
        if isinstance(b.code, Function)
        else f"body {b.call} is text: {b.code.reason.value}\n"
        for b in writer.bodies.values()
    )


def _plan_lines(plan: Plan, report: CheckReport, options: Options) -> Iterator[str]:
    gpu = gpu_of(options)
    yield f"program {plan.program.name}: {report.status}"
    yield from (f"  {line}" for p in report.problems for line in str(p).split("\n"))
    if options.target == "cuda":
        yield f"GPU: {gpu.name} ({gpu.architecture}, {gpu.multiprocessors} multiprocessors)"
    yield "grids:"
    for p in plan.program.calls:
        yield from _grid_lines(p, plan.call(p.call.name), plan.streams)
    yield "events:"
    for e in plan.events:
        shape = ", ".join(map(str, e.shape))
        origin = "derived" if e.derived else "declared"
        yield f"  {e.name}[{shape}]  count {e.count}  ({origin})"
        yield from _event_lines(plan, e.name)
    yield f"workspace: {plan.workspace} bytes{_example(plan, plan.workspace)}"
    if plan.shared_scratch:
        yield f"  one place for all iterations: {', '.join(plan.shared_scratch)}"
    if plan.words:
        names = ", ".join(b.tensor for b in plan.words)
        yield f"words of {names}: {plan.word_bytes} bytes{_example(plan, plan.word_bytes)}"
    if report.obligations:
        yield "obligations (checked by kernel.validate and with debug=True):"
        yield from (f"  {o.what} (at {o.place})" for o in report.obligations)


def _grid_lines(p: PlacedCall, c: CallPlan, streams: tuple[Stream, ...]) -> Iterator[str]:
    ranges = ", ".join(f"{a.var} < {a.extent}" for a in p.axes)
    how = c.schedule
    kind = how.kind.value + (f" ({how.policy.value})" if how.kind.value == "static" else "")
    group = f", queue {how.group}" if how.group >= 0 else ""
    yield f"  {p.call.name}({ranges})  {kind}{group}: {how.reason}"
    yield from (f"    note: {note}" for note in c.notes)
    for s in streams:
        if s.call == p.call.name:
            region = p.call.regions[s.arg]
            way = (
                f"streams {region} as {s.kind.value}"
                if s.is_streamed
                else f"reads {region} in place"
            )
            way += f" by {s.strategy}" * bool(s.strategy)
            yield f"    {way}: {s.reason}"


def _event_lines(plan: Plan, event: str) -> Iterator[str]:
    for c in plan.calls:
        coords = ", ".join(plan.program.placed(c.call).vars)
        for n in c.notifies:
            if n.event == event:
                yield f"    {c.call}({coords}) notifies {_cells(n.cells)}"
        for header, waits in ((True, c.header), (False, c.waits)):
            for w in waits:
                if w.event == event:
                    who = f"every worker, before {c.call}," if header else f"{c.call}({coords})"
                    if w.loop is not None:
                        who += f", in each iteration %{w.loop.var},"
                    yield f"    {who} waits for {_cells(w.cells)}  [{w.reason}]"
    for h in plan.handoffs:
        if h.event == event:
            yield f"    to {h.call} by {_handoff_text(h)}"


def _handoff_text(h: Handoff) -> str:
    """The hand-off of an edge, and its reason."""
    what = f" ({', '.join(h.tensors)})" if h.tensors else ""
    return f"{h.kind.value}{what}: {h.reason}"


def _cells(nests: tuple[Nest, ...]) -> str:
    return " and ".join(_cell(n) for n in nests)


def _cell(nest: Nest) -> str:
    """In the order of a Python comprehension: `[j] for j in 0 .. 4 if j <= i`."""
    index = ", ".join(text(i) for i in nest.index)
    return " ".join([f"[{index}]", *map(nest_axis_text, nest.axes),
                     *(f"if {text(g)}" for g in nest.guards)])


def _example(plan: Plan, size: Node) -> str:
    dims = {d.name: d.max for d in plan.program.dims}
    known = {k: v for k, v in dims.items() if v is not None}
    if len(known) < len(dims) or not dims:
        return ""
    at = ", ".join(f"{k} = {v}" for k, v in known.items())
    return f" ({evaluate(size, known)} at {at})"
