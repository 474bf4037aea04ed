"""The accesses of every call to every tensor, with the run-time data that maps read.

A call whose extents read run-time data also gets a *header* node: every worker reads those extents
before it enumerates the grid. A header has the call's loops and no tiles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from ..ir.expr import Const, Load, Node, Var, add, wrap
from ..ir.program import Call, GridAxis, PlacedCall, Program, has_data_extent
from ..ir.tensor import Axis, Point, Region, Rows, Slice, region_exprs
from ..ir.walk import free_vars, loads_of, substitute

HEADER = "#header"
ITERATION_MARK = "@"  # between a call and a loop of its body (iteration_nodes.py)


@dataclass(frozen=True)
class Access:
    """A region that a call reads, writes or accumulates into. For a write, `arg` is the number of
    the argument of the body."""

    node: PlacedCall
    region: Region
    writes: bool
    accumulates: bool = False
    arg: int = -1

    @property
    def is_data_dependent(self) -> bool:
        """True if run-time data decides which elements are touched, or whether the task exists."""
        return bool(loads_of(*region_exprs(self.region))) or has_data_extent(self.node.call)


def is_header(node: PlacedCall) -> bool:
    return node.call.name.endswith(HEADER)


@lru_cache(maxsize=16)
def nodes(program: Program) -> tuple[PlacedCall, ...]:
    """All calls in program order, each after its header if it has one."""
    found: list[PlacedCall] = []
    for p in program.calls:
        if header_reads(program, p.call):
            found.append(replace(p, call=_header(program, p.call)))
        found.append(p)
    return tuple(found)


def header_reads(program: Program, call: Call) -> tuple[Region, ...]:
    """Run-time data in the extents of the grid. Under push it includes the maps of declared waits,
    because the worker that completes a cell evaluates them for the tasks that it releases."""
    reads: list[Region] = []
    outer: tuple[GridAxis, ...] = ()
    for axis in call.grid:
        reads += [_load_region(program, ld, outer) for ld in loads_of(axis.extent)]
        outer = (*outer, axis)
    if call.pushed:
        for region in call.waits or ():
            reads += _region_loads(program, region, call.grid)
            reads += _count_loads(program, region, call.grid)
    return tuple(dict.fromkeys(reads))


def _header(program: Program, call: Call) -> Call:
    reads = header_reads(program, call)
    return replace(
        call, name=call.name + HEADER, grid=(), reads=reads, writes=(),
        accumulates=(), waits=None, notifies=None,
    )


def _load_region(program: Program, ld: Load, ranges: tuple[GridAxis, ...]) -> Region:
    """The elements a load may read while the variables of `ranges` run over their extents."""
    axes: list[Axis] = []
    known = {a.var: a.extent for a in ranges}
    for index, size in zip(ld.index, program.tensor(ld.tensor).shape, strict=True):
        used = [v for v in known if v in free_vars(index)]
        if not used:
            axes.append(Point(index))
        elif len(used) == 1 and not free_vars(known[used[0]]) & set(known):
            axes.append(Rows(used[0], known[used[0]], index))
        else:
            axes.append(Slice(Const(0), size))
    return Region(ld.tensor, tuple(axes))


def _region_loads(
    program: Program, region: Region, ranges: tuple[GridAxis, ...] = ()
) -> list[Region]:
    found = []
    for axis in region.axes:
        match axis:
            case Point(index):
                found += [_load_region(program, ld, ranges) for ld in loads_of(index)]
            case Slice(start, stop):
                found += [_load_region(program, ld, ranges) for ld in loads_of(start, stop)]
            case Rows(var, extent, index):
                own = (*ranges, GridAxis(var, extent))
                found += [_load_region(program, ld, own) for ld in loads_of(index, extent)]
    return found


def _count_loads(
    program: Program, wait: Region, outer: tuple[GridAxis, ...] = ()
) -> list[Region]:
    """Elements that the count of a waited event reads, at the cells of `wait`."""
    count = program.event(wait.tensor).count
    if count is None or not loads_of(count):
        return []
    cells: dict[str, Node] = {}
    ranges = list(outer)
    for k, axis in enumerate(wait.axes):
        match axis:
            case Point(index):
                cells[f"c{k}"] = index
            case Slice(start, _):
                ranges.append(GridAxis(f"w{k}", axis.nominal))
                cells[f"c{k}"] = add(start, Var(f"w{k}"))
            case Rows(var, extent, index):
                ranges.append(GridAxis(var, extent))
                cells[f"c{k}"] = index
    at = substitute(count, cells)
    return [_load_region(program, ld, tuple(ranges)) for ld in loads_of(at)]


def data_reads(program: Program, call: Call) -> tuple[Region, ...]:
    """The run-time data that a task reads to find its regions, waits and notifies. A notify map
    that reads what the task itself writes is no read of other tasks' data."""
    found: list[Region] = []
    for region in (*call.regions, *(call.waits or ())):
        found += _region_loads(program, region)
    for region in call.notifies or ():
        loads = _region_loads(program, region)
        found += [r for r in loads if not any(_is_within(r, w) for w in call.writes)]
    for wait in call.waits or ():
        found += _count_loads(program, wait)
    for axis in call.grid:
        found += [_load_region(program, ld, ()) for ld in loads_of(axis.extent)]
    return tuple(dict.fromkeys(found))


def _is_within(inner: Region, outer: Region) -> bool:
    """True if `inner` lies in `outer` by form."""
    return inner.tensor == outer.tensor and all(map(_is_axis_within, inner.axes, outer.axes))


def _is_axis_within(inner: Axis, outer: Axis) -> bool:
    match inner, outer:
        case Point(i), Point(j):
            return i == j
        case Point(i), Slice(start, stop):
            return i == start and wrap(add(i, Const(1)) <= stop) == Const(1)
        case Rows(var, n, index), Slice(start, stop):
            return start == Const(0) and index == Var(var) and n == stop
        case _:
            return inner == outer


@lru_cache(maxsize=16)
def accesses(program: Program) -> dict[str, list[Access]]:
    """The accesses by tensor, in program order. An accumulation is one access that reads and
    writes."""
    found: dict[str, list[Access]] = {t.name: [] for t in program.tensors}
    for node in nodes(program):
        call = node.call
        reads = call.reads if is_header(node) else (*call.reads, *data_reads(program, call))
        for r in dict.fromkeys(reads):
            found[r.tensor].append(Access(node, r, False))
        for r in call.accumulates:
            found[r.tensor].append(Access(node, r, True, True))
        first = len(call.reads) + len(call.accumulates)
        for k, r in enumerate(call.writes):
            found[r.tensor].append(Access(node, r, True, arg=first + k))
    return found
