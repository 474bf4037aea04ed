"""The proof: runs every question over a program and its events, and words the answers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import islpy as isl

from ..errors import NonAffine
from ..ir.program import EventTensor, PlacedCall, Program
from ..ir.walk import loads_of
from ..progress import doing
from .access import HEADER, accesses, is_header
from .cells import before
from .check_report import CheckReport, Kind, Obligation, Problem, Task, Witness, make_report
from .contradictions import contradictions
from .count_check import count_problems
from .coverage import closed, shown, unordered
from .definite_assignment import assignment_problems
from .deps import (
    Dependence,
    dependences,
    element_map,
    same_call_conflicts,
    same_task_conflicts,
)
from .derive import Derived
from .event_maps import Events
from .instance import unordered_pair
from .iteration_nodes import base_name, chunk_elements, chunked, is_chunk, split
from .order_graph import OrderGraph, add_fences
from .output_writes import output_problems
from .region_bounds import range_problems, unbounded
from .sets.budget import DERIVATION, QUESTION, OutOfBudget, budget
from .sets.isl_text import NotAffine
from .sets.witness import Pair, pair_witness, smallest, smallest_pair, task_of
from .wait_reads import Unguarded, unguarded


@dataclass(frozen=True)
class _Ask:
    program: Program
    derived: Derived
    events: Events


def precheck(program: Program) -> CheckReport:
    """What must hold before events can be derived at all. Where it does not, what else is found
    without events is told too."""
    problems = [*contradictions(program), *unbounded(program)]
    if problems:
        problems += range_problems(program)[0]
    return make_report(problems, [])


def verify(program: Program, derived: Derived, events: Events | None = None) -> CheckReport:
    """All findings of a program with its (derived and declared) events; `events` are their uses, if
    they were collected already (order that is shown on the way is added to their graph)."""
    try:
        with budget(DERIVATION):
            return _verify(_Ask(program, derived, events or derived.uses(program)))
    except NotAffine as e:
        why, hint = f"the product '{e}' is beyond the proof", NonAffine.default_hint
    except OutOfBudget:
        why, hint = "the proof takes too many steps", Kind.unproved.error.default_hint
    return make_report([Problem(Kind.unproved, why, program.calls[0].call.place, hint)], [])


def _verify(ask: _Ask) -> CheckReport:
    program, derived = ask.program, ask.derived
    problems, obligations = range_problems(program)
    problems += assignment_problems(program)
    problems += _orphans(program, obligations)
    problems += output_problems(program, obligations)
    problems += _same_call(program) + _same_task(program)
    for e in derived.events:
        problems += count_problems(program, ask.events, e, obligations)
    problems += _cycles(ask)
    chunks = ask.events.graph.chunks
    deps = [s for d in dependences(program).deps for s in split(program, d, chunks)]
    if any(d.later for d in deps):
        add_fences(ask.events.graph)
    plain = [(d.source.call.name, d.sink.call.name, d.relation) for d in deps]
    known = shown(program, ask.events, [*derived.hints, *plain])
    for d in deps:
        problems += _coverage(ask, known, d)
    problems += [_unguarded(u) for u in unguarded(program, ask.events)]
    obligations += _facts(program)
    return make_report(_once(problems), obligations)


def _once(problems: list[Problem]) -> list[Problem]:
    """One finding for each kind and pair of calls: a read and a write of one pair say the same."""
    seen: dict[object, Problem] = {}
    for p in problems:
        calls = tuple(t.call for t in p.witness.tasks) if p.witness else p.message
        event = p.witness.event if p.witness else None
        seen.setdefault((p.kind, calls, event), p)
    return list(seen.values())


# ---- conflicts inside a call, and reads of nothing -----------------------------------------


def _orphans(program: Program, obligations: list[Obligation]) -> list[Problem]:
    out = []
    for orphan in dependences(program).orphans:
        node, name = orphan.access.node, orphan.access.region.tensor
        if orphan.maybe:
            obligations.append(Obligation(
                f"every element of {name} that '{node.call.name}' reads has been written",
                node.call.place, f"let the data that places the writes of {name} cover what "
                f"'{node.call.name}' reads", tensor=name))
            continue
        hit = smallest(orphan.relation.wrap().flatten())
        if hit is None:
            continue
        dims, values = hit
        task, index = task_of(node, values[: len(node.vars)]), values[len(node.vars) :]
        out.append(Problem(
            Kind.no_producer, f"{task} reads {name}{list(index)}, which nobody writes before",
            node.call.place, Kind.no_producer.error.default_hint,
            Witness(tuple(dims.items()), (task,), name, index)))
    return out


def _same_call(program: Program) -> list[Problem]:
    out = []
    for a, b, pairs in same_call_conflicts(program):
        kind = Kind.write_write if a.writes and b.writes else Kind.uncovered_read
        elements = element_map(program, a), element_map(program, b)
        pair = smallest_pair(pairs)
        assert pair is not None
        w = pair_witness(a.node, b.node, pair, elements, a.region.tensor)
        verb = "both write" if kind is Kind.write_write else "write and read"
        out.append(Problem(
            kind, f"two tiles of call '{a.node.call.name}', {w.tasks[0]} and {w.tasks[1]}, {verb} "
            f"{_element(w)}", a.node.call.place,
            "tiles of one call are concurrent: make the regions disjoint, or split the call", w))
    return out


def _same_task(program: Program) -> list[Problem]:
    out = []
    for a, b, tasks in same_task_conflicts(program):
        pair = smallest_pair(tasks)
        assert pair is not None
        elements = element_map(program, a), element_map(program, b)
        w = pair_witness(a.node, b.node, pair, elements, a.region.tensor)
        w = replace(w, tasks=w.tasks[:1])
        out.append(Problem(
            Kind.written_twice, f"{w.tasks[0]} writes {_element(w)} twice, by {a.region} and by "
            f"{b.region}", a.node.call.place, Kind.written_twice.error.default_hint, w))
    return out


def _element(w: Witness) -> str:
    return f"{w.tensor}{list(w.index) if w.index is not None else ''}"


# ---- order ---------------------------------------------------------------------------------

_KINDS = {"raw": Kind.uncovered_read, "war": Kind.write_after_read, "waw": Kind.write_write}
_VERBS = {"raw": "reads", "war": "overwrites", "waw": "overwrites"}


def _coverage(ask: _Ask, known: OrderGraph, d: Dependence) -> list[Problem]:
    doing(f"'{d.source.call.name}' before '{d.sink.call.name}' on {d.tensor} ({d.kind})")
    try:
        with budget(QUESTION):
            left = unordered(ask.program, ask.events, known, d)
    except OutOfBudget:
        return [_unproved(d, "the proof takes too many steps", None)]
    if left.is_empty():
        return []
    elements = None
    if d.accesses is None:
        elements = _touched(ask.program, d, 0), _touched(ask.program, d, 1)
    pair = smallest_pair(left)
    assert pair is not None
    if is_header(d.source):
        return [_header_overwritten(d, pair_witness(d.source, d.sink, pair, elements, d.tensor))]
    real = _refutation(ask, d, left, pair)
    w = pair_witness(d.source, d.sink, real or pair, elements, d.tensor)
    if real is None:
        if closed(ask.events, d, left):
            return []
        return [_unproved(d, "no event or chain of events was found that orders them", w)]
    done = "written" if d.kind != "war" else "read"
    when = f" in iteration {real[1][-1]} of its loop" if is_chunk(d.sink) else ""
    return [Problem(
        _KINDS[d.kind],
        f"{w.tasks[1]} {_VERBS[d.kind]} {_element(w)}{when}, {done} by {w.tasks[0]}, "
        "without waiting for it",
        d.sink.call.place, _KINDS[d.kind].error.default_hint, w)]


def _touched(program: Program, d: Dependence, which: int) -> isl.Map:
    node = (d.source, d.sink)[which]
    if is_chunk(node):
        return chunk_elements(program, chunked(program)[base_name(node.call.name), d.tensor])
    total = None
    for a in accesses(program)[d.tensor]:
        if a.node.call.name == node.call.name:
            m = element_map(program, a)
            total = m if total is None else total.union(m)
    return total


def _refutation(ask: _Ask, d: Dependence, left: isl.Map, first: Pair) -> Pair | None:
    """A pair that nothing orders. Where run-time data decides, that is so if not even the widest
    reading of the events could."""
    if _has_data(ask):
        return first if _never_ordered(ask, d) else None
    return unordered_pair(ask.program, ask.derived, d.source, d.sink, left)


def _has_data(ask: _Ask) -> bool:
    return any(u.data for u in (*ask.events.waits, *ask.events.notifies)) or any(
        loads_of(*(a.extent for a in p.axes)) for p in ask.program.calls
    )


def _never_ordered(ask: _Ask, d: Dependence) -> bool:
    """No chain of events leads from the one call to the other at all."""
    into: dict[str, set[str]] = {}
    for w in ask.events.waits:
        for n in ask.events.notifies:
            if n.event.name == w.event.name:
                into.setdefault(_call_of(w.node), set()).add(n.node)
    todo, seen = [_call_of(d.sink.call.name)], set()
    while todo:
        for a in into.get(todo.pop(), ()):
            if a not in seen:
                seen.add(a)
                todo.append(a)
    return d.source.call.name not in seen


def _call_of(node: str) -> str:
    return base_name(node.removesuffix(HEADER))


def _unguarded(u: Unguarded) -> Problem:
    pair = smallest_pair(u.relation)
    assert pair is not None
    w = pair_witness(u.source, u.sink, pair, None, u.tensor)
    if u.kind == "war":
        return Problem(
            Kind.write_after_read, f"{w.tasks[1]} overwrites {u.tensor}, which a wait of "
            f"{w.tasks[0]} reads, without waiting for it", u.sink.call.place,
            Kind.write_after_read.error.default_hint, w)
    return Problem(
        Kind.uncovered_read, f"a wait of {w.tasks[1]} reads {u.tensor}, written by {w.tasks[0]}, "
        "before any wait for it", u.sink.call.place,
        "put a wait for the writer before the wait whose map or count reads its values", w)


def _header_overwritten(d: Dependence, w: Witness) -> Problem:
    return Problem(
        Kind.write_after_read,
        f"{w.tasks[1]} overwrites {d.tensor}, from which workers may still read the extents of "
        f"call '{w.tasks[0].call}'", d.sink.call.place,
        f"give {d.tensor} an axis for the loop, so that each iteration has its own extents", w)


def _unproved(d: Dependence, why: str, w: Witness | None) -> Problem:
    return Problem(
        Kind.unproved,
        f"cannot show that '{d.source.call.name}' comes before '{_call_of(d.sink.call.name)}' "
        f"on {d.tensor} ({d.kind}): {why}",
        d.sink.call.place, Kind.unproved.error.default_hint, w)


# ---- cycles ------------------------------------------------------------------------------


def _cycles(ask: _Ask) -> list[Problem]:
    out = []
    graph = ask.events.graph
    for w in ask.events.waits:
        for n in ask.events.notifies:
            if n.event.name != w.event.name:
                continue
            a, b = graph.nodes[n.node], graph.nodes[w.node]
            pairs = ask.events.map(n).apply_range(ask.events.map(w).reverse())
            wrong = pairs.subtract(_forward(ask, a, b))
            if not wrong.is_empty():
                out.append(_cycle(a, b, wrong, n.event))
    return out


def _forward(ask: _Ask, a: PlacedCall, b: PlacedCall) -> isl.Map:
    return before(ask.program, a, b)


def _cycle(a: PlacedCall, b: PlacedCall, wrong: isl.Map, event: EventTensor) -> Problem:
    hit = smallest(wrong.wrap().flatten())
    assert hit is not None
    dims, values = hit
    first: Task = task_of(a, values[: len(a.vars)])
    second: Task = task_of(b, values[len(a.vars) :])
    return Problem(
        Kind.cycle, f"{second} waits for {first} on {event.name}, which does not come before it",
        b.call.place, Kind.cycle.error.default_hint,
        Witness(tuple(dims.items()), (first, second), event=event.name, cell=()))


# ---- what run-time data must satisfy -------------------------------------------------------


def _facts(program: Program) -> list[Obligation]:
    out = []
    for t in program.tensors:
        if t.bound is not None:
            out.append(Obligation(f"{t.bound[0]} <= {t.name}[..] <= {t.bound[1]}", t.place))
        if t.monotone:
            out.append(Obligation(f"{t.name} does not fall along its last axis", t.place))
        if t.distinct:
            axes = ", ".join(map(str, t.distinct))
            out.append(Obligation(f"{t.name} has distinct values over axes {axes}", t.place))
    for f in program.facts:
        over = ", ".join(f"0 <= {a.var} < {a.extent}" for a in f.over)
        out.append(Obligation(f"{f.cond}{' for ' + over if over else ''}", f.place))
    return out
