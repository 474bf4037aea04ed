"""Programs and plans as text, one item a line, with an indent of two spaces a level.

ir/parse.py reads programs back. Plans are for people. Programs and plans print themselves by this
module, so it knows their classes by name alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from .cuda_body_text import cpp_body_lines, cuda_body_lines
from .expr import Const, Dim, Node, text
from .tensor import Region, Tensor
from .tile_text import INDENT, body_lines

if TYPE_CHECKING:
    from .plan import CallPlan, Handoff, Nest, NestAxis, Plan, Release, Wait
    from .program import Call, EventTensor, Fact, GridAxis, Loop, Program

# ---- programs ------------------------------------------------------------------------------


def program_text(program: Program) -> str:
    """The whole program; parses back to an equal one."""
    return "\n".join(_program_lines(program)) + "\n"


def _program_lines(program: Program) -> Iterator[str]:
    yield f"program {program.name}"
    yield from (dim_text(d) for d in program.dims)
    yield from (tensor_text(t) for t in program.tensors)
    yield from (event_text(e) for e in program.events)
    yield from (fact_text(f) for f in program.facts)
    for item in program.body:
        yield from item.lines()


def dim_text(d: Dim) -> str:
    return f"dim {d.name} in {d.min}..{'' if d.max is None else d.max}"


def tensor_text(t: Tensor) -> str:
    line = f"{t.role.value} {t.name} : {t.dtype}[{_list(t.shape)}]"
    if t.bound is not None:
        line += f"; bound {text(t.bound[0])} .. {text(t.bound[1])}"
    if t.monotone:
        line += "; monotone"
    if t.distinct:
        line += f"; distinct {', '.join(str(a) for a in t.distinct)}"
    return line + ("; partial" if t.partial else "")


def event_text(e: EventTensor) -> str:
    line = f"event {e.name}[{_list(e.shape)}]"
    if e.count is not None:
        line += f"; count {text(e.count)}"
    return line + ("; derived" if e.derived else "")


def fact_text(f: Fact) -> str:
    return "; ".join((f"fact {text(f.cond)}", *(grid_axis_text(a) for a in f.over)))


def grid_axis_text(a: GridAxis) -> str:
    return f"{a.var} < {text(a.extent)}"


def _list(exprs: Iterable[Node]) -> str:
    return ", ".join(text(e) for e in exprs)


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (INDENT + line for line in lines)


def loop_lines(loop: Loop) -> Iterator[str]:
    yield f"loop {loop.var} < {text(loop.extent)}"
    for item in loop.body:
        yield from _indented(item.lines())


def call_lines(call: Call) -> Iterator[str]:
    """A call with its grid, regions, edges and body."""
    flags = ("; unordered" if call.unordered else "") + ("; pushed" if call.pushed else "")
    yield f"call {call.name} : {call.kind}{flags}"
    yield from _indented(_call_parts(call))


def _call_parts(call: Call) -> Iterator[str]:
    yield from (f"grid {grid_axis_text(a)}" for a in call.grid)
    for word, regions in (
        ("read", call.reads),
        ("accumulate", call.accumulates),
        ("write", call.writes),
    ):
        yield from (f"{word} {r}" for r in regions)
    yield from _edge_lines("wait", call.waits)
    yield from _edge_lines("notify", call.notifies)
    yield "body"
    yield from _indented(body_lines(call.body))
    if call.cpp_body is not None:
        yield "cpp body"
        yield from cpp_body_lines(call.cpp_body)
    if call.cuda_body is not None:
        yield "cuda body"
        yield from _indented(cuda_body_lines(call.cuda_body))


def _edge_lines(word: str, regions: tuple[Region, ...] | None) -> Iterator[str]:
    """Nothing for derived edges, `none` for an empty list."""
    if regions == ():
        yield f"{word} none"
    yield from (f"{word} {r}" for r in regions or ())


# ---- plans ---------------------------------------------------------------------------------


def plan_text(plan: Plan) -> str:
    """Memory, events, and for each call its schedule, waits and notifies."""
    return "\n".join(_plan_lines(plan)) + "\n"


def _plan_lines(plan: Plan) -> Iterator[str]:
    yield f"plan {plan.program.name}"
    yield f"workspace {text(plan.workspace)} bytes"
    for b in plan.buffers:
        yield f"buffer {b.tensor} at {text(b.offset)}; {text(b.size)} bytes"
    for b in plan.words:
        yield f"words {b.tensor} at {text(b.offset)}; {text(b.size)} bytes"
    yield from (event_text(e) for e in plan.events)
    yield from (handoff_text(h) for h in plan.handoffs)
    for c in plan.calls:
        yield from call_plan_lines(c)
    for r in plan.releases:
        yield from release_lines(r)


def handoff_text(h: Handoff) -> str:
    what = f" of {', '.join(h.tensors)}" if h.tensors else ""
    return f"handoff {h.event} -> {h.call}: {h.kind.value}{what}; because {h.reason}"


def call_plan_lines(c: CallPlan) -> Iterator[str]:
    s = c.schedule
    line = f"call {c.call}: {s.kind.value}"
    if s.kind.value == "static":
        line += f" {s.policy.value}"
    if s.shift != Const(0):
        line += f"; shift {text(s.shift)}"
    if s.group >= 0:
        line += f"; group {s.group}"
    yield line + (f"; pending {', '.join(s.pending)}" if s.pending else "")
    if s.reason:
        yield f"{INDENT}because {s.reason}"
    for w in c.header:
        yield from _indented(_wait_lines("header wait", w))
    for w in c.waits:
        yield from _indented(_wait_lines("wait", w))
    for n in c.notifies:
        yield from (f"{INDENT}notify {n.event}: {nest_text(nest)}" for nest in n.cells)
    yield from (f"{INDENT}note: {note}" for note in c.notes)


def _wait_lines(word: str, wait: Wait) -> Iterator[str]:
    why = f"; for {wait.reason}" if wait.reason else ""
    at = f" at each %{wait.loop.var}" if wait.loop is not None else ""
    for nest in wait.cells:
        yield f"{word} {wait.event}{at}: {nest_text(nest)}{why}"


def release_lines(r: Release) -> Iterator[str]:
    for nest in r.tasks:
        yield f"release {r.event} -> {r.call}: {nest_text(nest)}"


def nest_text(nest: Nest) -> str:
    """`for j in 0..4 if j <= i: [i, j]`; a nest without axes is just its index."""
    parts = [nest_axis_text(a) for a in nest.axes]
    parts += [f"if {text(g)}" for g in nest.guards]
    index = f"[{_list(nest.index)}]"
    return f"{' '.join(parts)}: {index}" if parts else index


def nest_axis_text(a: NestAxis) -> str:
    """The upper end is excluded."""
    step = "" if a.step == 1 else f" step {a.step}"
    return f"for {a.var} in {text(a.lo)} .. {text(a.hi)}{step}"
