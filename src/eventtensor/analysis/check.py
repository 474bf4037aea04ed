"""The proof: asks every question about a program and its events, and words the answers.

The other modules of this folder answer the questions. A problem has the smallest witness. What only
run-time data can decide is an obligation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import islpy as isl

from ..errors import NonAffine
from ..ir.program import EventTensor, PlacedCall, Program
from ..ir.walk import loads_of
from ..progress import doing
from .access import HEADER, accesses, is_header
from .cells import program_order
from .check_report import CheckReport, Kind, Obligation, Problem, Task, Witness, make_report
from .contradictions import contradictions
from .count_check import count_problems
from .coverage import is_ordered_by_closure, proved_order, unordered_part
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
from .iteration_nodes import (
    base_name,
    is_iteration,
    iteration_elements,
    sliced_operands,
    split_dependence,
)
from .order_graph import OrderGraph, add_fences
from .output_writes import output_problems
from .region_bounds import bounds_problems, unbounded_problems
from .sets.budget import DERIVATION, QUESTION, OutOfBudget, budget
from .sets.isl_text import NotAffine
from .sets.witness import Pair, pair_witness, smallest, smallest_pair, task_of
from .wait_reads import UnorderedRead, unordered_reads


@dataclass(frozen=True)
class _Proof:
    program: Program
    derived: Derived
    events: Events


def precheck(program: Program) -> CheckReport:
    """Problems that keep events from being derived. If there are some, the report also has the
    problems that are found without events."""
    problems = [*contradictions(program), *unbounded_problems(program)]
    if problems:
        problems += bounds_problems(program)[0]
    return make_report(problems, [])


def verify(program: Program, derived: Derived, events: Events | None = None) -> CheckReport:
    """The proof of a program with its derived and declared events. `events` are the waits and
    notifies, if they are collected already; edges of fences are added to their graph."""
    try:
        with budget(DERIVATION):
            return _verify(_Proof(program, derived, events or derived.uses(program)))
    except NotAffine as e:
        why, hint = f"the product '{e}' is beyond the proof", NonAffine.default_hint
    except OutOfBudget:
        why, hint = "the proof takes too many steps", Kind.unproved.error.default_hint
    return make_report([Problem(Kind.unproved, why, program.calls[0].call.place, hint)], [])


def _verify(proof: _Proof) -> CheckReport:
    program, derived = proof.program, proof.derived
    problems, obligations = bounds_problems(program)
    problems += assignment_problems(program)
    problems += _orphan_reads(program, obligations)
    problems += output_problems(program, obligations)
    problems += _same_call_problems(program) + _same_task_problems(program)
    for e in derived.events:
        problems += count_problems(program, proof.events, e, obligations)
    problems += _cycle_problems(proof)
    iteration_nodes = proof.events.graph.iteration_nodes
    deps = [
        s for d in dependences(program).deps for s in split_dependence(program, d, iteration_nodes)
    ]
    if any(d.is_later_iteration for d in deps):
        add_fences(proof.events.graph)
    plain = [(d.source.call.name, d.sink.call.name, d.relation) for d in deps]
    known = proved_order(program, proof.events, [*derived.hints, *plain])
    for d in deps:
        problems += _order_problems(proof, known, d)
    problems += [_wait_read_problem(u) for u in unordered_reads(program, proof.events)]
    obligations += _fact_obligations(program)
    return make_report(_without_repeats(problems), obligations)


def _without_repeats(problems: list[Problem]) -> list[Problem]:
    """The first problem for each kind and pair of calls, because the others say the same."""
    seen: dict[object, Problem] = {}
    for p in problems:
        calls = tuple(t.call for t in p.witness.tasks) if p.witness else p.message
        event = p.witness.event if p.witness else None
        seen.setdefault((p.kind, calls, event), p)
    return list(seen.values())


# ---- conflicts inside a call, and reads of nothing -----------------------------------------


def _orphan_reads(program: Program, obligations: list[Obligation]) -> list[Problem]:
    out = []
    for orphan in dependences(program).orphans:
        node, name = orphan.access.node, orphan.access.region.tensor
        if orphan.is_possible:
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


def _same_call_problems(program: Program) -> list[Problem]:
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


def _same_task_problems(program: Program) -> list[Problem]:
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


def _order_problems(proof: _Proof, known: OrderGraph, d: Dependence) -> list[Problem]:
    doing(f"'{d.source.call.name}' before '{d.sink.call.name}' on {d.tensor} ({d.kind})")
    try:
        with budget(QUESTION):
            left = unordered_part(proof.program, proof.events, known, d)
    except OutOfBudget:
        return [_unproved(d, "the proof takes too many steps", None)]
    if left.is_empty():
        return []
    elements = None
    if d.accesses is None:
        elements = _touched_elements(proof.program, d, 0), _touched_elements(proof.program, d, 1)
    pair = smallest_pair(left)
    assert pair is not None
    if is_header(d.source):
        return [_header_overwritten(d, pair_witness(d.source, d.sink, pair, elements, d.tensor))]
    real = _refutation(proof, d, left, pair)
    w = pair_witness(d.source, d.sink, real or pair, elements, d.tensor)
    if real is None:
        if is_ordered_by_closure(proof.events, d, left):
            return []
        return [_unproved(d, "no event or chain of events was found that orders them", w)]
    done = "written" if d.kind != "war" else "read"
    when = f" in iteration {real[1][-1]} of its loop" if is_iteration(d.sink) else ""
    return [Problem(
        _KINDS[d.kind],
        f"{w.tasks[1]} {_VERBS[d.kind]} {_element(w)}{when}, {done} by {w.tasks[0]}, "
        "without waiting for it",
        d.sink.call.place, _KINDS[d.kind].error.default_hint, w)]


def _touched_elements(program: Program, d: Dependence, which: int) -> isl.Map:
    node = (d.source, d.sink)[which]
    if is_iteration(node):
        return iteration_elements(
            program, sliced_operands(program)[base_name(node.call.name), d.tensor]
        )
    total = None
    for a in accesses(program)[d.tensor]:
        if a.node.call.name == node.call.name:
            m = element_map(program, a)
            total = m if total is None else total.union(m)
    return total


def _refutation(proof: _Proof, d: Dependence, left: isl.Map, first: Pair) -> Pair | None:
    """A pair that nothing orders. Where run-time data decides, no chain of events may lead from the
    one call to the other."""
    if _reads_data(proof):
        return first if _has_no_chain(proof, d) else None
    return unordered_pair(proof.program, proof.derived, d.source, d.sink, left)


def _reads_data(proof: _Proof) -> bool:
    return any(u.is_data_dependent for u in (*proof.events.waits, *proof.events.notifies)) or any(
        loads_of(*(a.extent for a in p.axes)) for p in proof.program.calls
    )


def _has_no_chain(proof: _Proof, d: Dependence) -> bool:
    """True if no chain of events leads from the source to the sink."""
    into: dict[str, set[str]] = {}
    for w in proof.events.waits:
        for n in proof.events.notifies:
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


def _wait_read_problem(u: UnorderedRead) -> Problem:
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


def _cycle_problems(proof: _Proof) -> list[Problem]:
    out = []
    graph = proof.events.graph
    for w in proof.events.waits:
        for n in proof.events.notifies:
            if n.event.name != w.event.name:
                continue
            a, b = graph.nodes[n.node], graph.nodes[w.node]
            pairs = proof.events.map(n).apply_range(proof.events.map(w).reverse())
            wrong = pairs.subtract(_forward(proof, a, b))
            if not wrong.is_empty():
                out.append(_cycle_problem(a, b, wrong, n.event))
    return out


def _forward(proof: _Proof, a: PlacedCall, b: PlacedCall) -> isl.Map:
    return program_order(proof.program, a, b)


def _cycle_problem(a: PlacedCall, b: PlacedCall, wrong: isl.Map, event: EventTensor) -> Problem:
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


def _fact_obligations(program: Program) -> list[Obligation]:
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
