"""Finds scratch tensors that the iterations of a loop can share.

A tensor with an axis for the iterations is easy to write. But its memory is cold in every
iteration, and dead data is written back. One buffer for all iterations stays in the cache. It is
legal if the existing events order each iteration's writes after the reads of the earlier ones.

Pre: a proved program. Post: results are equal, and every conflict is ordered.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

import islpy as isl

from ..ir.expr import Var
from ..ir.program import Item, Loop, Program
from ..ir.tensor import Point, Region, Role, Tensor
from ..ir.walk import free_vars
from .access import Access, accesses
from .deps import Dependence, assigns_region, dependences, dependences_of, same_call_conflicts
from .derive import Derived
from .order_check import OrderCheck, loaded_tensors
from .sets.budget import DERIVATION, OutOfBudget, budget

T = TypeVar("T")


def shared_scratch(program: Program, derived: Derived, kept: frozenset[str]) -> dict[str, int]:
    """Scratch tensors and their axis that can go, under the order of the events `derived`. Tensors
    in `kept` are not changed. Empty if the search takes too many steps."""
    try:
        with budget(DERIVATION):
            return _shared_scratch(program, derived, kept)
    except OutOfBudget:
        return {}


def _shared_scratch(program: Program, derived: Derived, kept: frozenset[str]) -> dict[str, int]:
    fixed = kept | loaded_tensors(program)
    axes = {
        t.name: k
        for t in program.tensors
        if t.name not in fixed
        for k in [_iteration_axis(program, t)]
        if k is not None
    }
    if not axes:
        return {}
    folded = without_axes(program, axes)
    asked = {name: dependences_of(folded, folded.tensor(name)).deps for name in axes}
    known = [*dependences(program).deps, *(d for deps in asked.values() for d in deps)]
    order = OrderCheck(folded, derived, known)
    meeting = {a.region.tensor for a, _, _ in same_call_conflicts(folded)}

    def legal(name: str) -> bool:
        before = [d for d in dependences(program).deps if d.tensor == name]
        same = is_iteration_private(program, name, axes[name]) or _has_same_flow(
            before, asked[name]
        )
        return same and name not in meeting and all(map(order.is_ordered, asked[name]))

    return {name: k for name, k in axes.items() if legal(name)}


def without_axes(program: Program, axes: dict[str, int]) -> Program:
    """The program in which these tensors lack an axis. All regions have a point on that axis."""

    def tensor(t: Tensor) -> Tensor:
        return replace(t, shape=_without(t.shape, axes[t.name])) if t.name in axes else t

    def region(r: Region) -> Region:
        return replace(r, axes=_without(r.axes, axes[r.tensor])) if r.tensor in axes else r

    def item(x: Item) -> Item:
        if isinstance(x, Loop):
            return replace(x, body=tuple(map(item, x.body)))
        return replace(x, reads=tuple(map(region, x.reads)), writes=tuple(map(region, x.writes)))

    return replace(program, tensors=tuple(map(tensor, program.tensors)),
                   body=tuple(map(item, program.body)))


def _without(items: tuple[T, ...], k: int) -> tuple[T, ...]:
    return (*items[:k], *items[k + 1 :])


def _iteration_axis(program: Program, t: Tensor) -> int | None:
    """An axis of a scratch tensor on which every task takes a point that depends on its iteration.
    A task has one region of the tensor, and assigns all of what it writes."""
    uses = accesses(program)[t.name]
    if t.role is not Role.scratch or t.bound is not None or t.monotone or t.distinct:
        return None
    if len({a.node.call.name for a in uses}) < len(uses) or any(a.region.pad for a in uses):
        return None
    if any(a.accumulates or (a.writes and not assigns_region(program, a)) for a in uses):
        return None
    loops = {loop.var for a in uses for loop in a.node.loops}
    for k in range(len(t.shape)):
        at = [a.region.axes[k] for a in uses]
        if all(isinstance(a, Point) for a in at) and any(
            free_vars(a.index) & loops for a in at if isinstance(a, Point)
        ):
            return k
    return None


def is_iteration_private(program: Program, tensor: str, k: int) -> bool:
    """True if the point of each task is its iteration of one outermost loop. A task then reads what
    the same iteration wrote."""
    loops = {_outer_loop_of_axis(a, k) for a in accesses(program)[tensor]}
    return len(loops) == 1 and None not in loops


def _outer_loop_of_axis(a: Access, k: int) -> int | None:
    """The position of the outermost loop around a call, if its variable is the index of the
    axis."""
    outer = [Point(Var(loop.var)) for loop in a.node.loops[:1]]
    return a.node.position[0] if a.region.axes[k] in outer else None


def _has_same_flow(before: Iterable[Dependence], after: Iterable[Dependence]) -> bool:
    """True if every task still reads what the same tasks wrote. They are of one iteration of one
    call, in which one tile writes an element, so this holds for each element."""
    one, other = _flow(before), _flow(after)
    return (
        one is not None
        and other is not None
        and one.keys() == other.keys()
        and all(m.is_equal(other[pair]) for pair, m in one.items())
        and _reads_one_iteration(before)
    )


def _flow(deps: Iterable[Dependence]) -> dict[tuple[str, str], isl.Map] | None:
    """The relations from writers to readers; None if run-time data decides."""
    if any(d.is_data_dependent for d in deps):
        return None
    return {(d.source.call.name, d.sink.call.name): d.relation for d in deps if d.kind == "raw"}


def _reads_one_iteration(deps: Iterable[Dependence]) -> bool:
    """True if each task reads from one iteration of one call."""
    seen: dict[str, isl.Set] = {}
    for d in deps:
        if d.kind != "raw":
            continue
        loops, all_of_it = len(d.source.loops), d.relation.dim(isl.dim_type.in_)
        by_loops = d.relation.project_out(isl.dim_type.in_, loops, all_of_it - loops)
        readers, sink = d.relation.range(), d.sink.call.name
        if not by_loops.is_injective():
            return False
        if sink in seen and not readers.is_disjoint(seen[sink]):
            return False
        seen[sink] = readers.union(seen[sink]) if sink in seen else readers
    return True
