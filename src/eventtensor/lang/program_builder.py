"""`et.Program`: declares tensors, events and facts, and collects calls.

`build()` gives the frozen ir.program.Program. Names are checked here; regions, grids and bodies are
checked by the other modules of lang.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from contextlib import contextmanager

from .. import ir
from ..errors import BadCall, BadDim, BadGrid, BadName
from ..ir.cuda_body_check import check_cuda_body
from ..ir.expr import Dim, ExprLike, Node, Var
from ..ir.program import Call, EventTensor, Fact, Item, Loop
from ..ir.tensor import DType, Role, Tensor, region_exprs
from ..ir.tile import ArgMode
from ..ir.walk import dims_of, loads_of
from ..source_location import user_place
from . import call as calls
from . import declarations
from .region_refs import EventRef, RegionRef, TensorRef
from .task import Task
from .trace_body import Operand, trace_body

# Names of the compiler's own variables: rows of a gather, coordinates of cells, wait nests.
RESERVED = re.compile(r"(_r|c|w)\d+")


class Program:
    """A tiled program under construction."""

    def __init__(self, name: str) -> None:
        self._names: dict[str, str] = {}
        self._dims: dict[str, Dim] = {}
        self._tensors: dict[str, Tensor] = {}
        self._events: dict[str, EventTensor] = {}
        self._facts: list[Fact] = []
        self._blocks: list[list[Item]] = [[]]
        self._loops: list[str] = []
        self._coords: set[str] = set()
        self.name = self._check_name(name, "program")

    # ---- declarations -----------------------------------------------------------------------

    def input(self, name: str, shape: object, dtype: DType, **facts: object) -> TensorRef:
        """A tensor that the caller passes and no task writes."""
        return self._tensor(Role.input, name, shape, dtype, facts)

    def output(
        self, name: str, shape: object, dtype: DType, *, partial: bool = False, **facts: object
    ) -> TensorRef:
        """A tensor that the program writes for the caller. Unless it is `partial`, all of it."""
        return self._tensor(Role.output, name, shape, dtype, facts, bool(partial))

    def scratch(self, name: str, shape: object, dtype: DType, **facts: object) -> TensorRef:
        """A tensor that lives in the workspace for one launch."""
        return self._tensor(Role.scratch, name, shape, dtype, facts)

    def weight(self, name: str, shape: object, dtype: DType, **facts: object) -> TensorRef:
        """A tensor that is constant across launches."""
        return self._tensor(Role.weight, name, shape, dtype, facts)

    def state(self, name: str, shape: object, dtype: DType, **facts: object) -> TensorRef:
        """A tensor that outlives a launch: a later launch reads what this one writes."""
        return self._tensor(Role.state, name, shape, dtype, facts)

    def _tensor(
        self, role: Role, name: str, shape: object, dtype: DType, facts: dict[str, object],
        partial: bool = False,
    ) -> TensorRef:
        self._check_name(name, "tensor")
        tensor = declarations.tensor(role, name, shape, dtype, facts, partial)
        self._note_dims(*tensor.shape, *(tensor.bound or ()))
        self._names[name] = "tensor"
        self._tensors[name] = tensor
        return TensorRef(self, tensor)

    def events(self, name: str, shape: object, count: object = None) -> EventRef:
        """An event tensor; `count` is an int, an expression, a lambda of the cell's coordinates,
        or None to derive it."""
        self._check_name(name, "event tensor")
        event = declarations.event(self._context(), name, shape, count)
        self._note_dims(*event.shape, *(() if event.count is None else (event.count,)))
        self._names[name] = "event tensor"
        self._events[name] = event
        return EventRef(self, event)

    def fact(self, cond: object, over: object = ()) -> None:
        """State a condition on run-time data. The proof assumes it; debug builds check it."""
        for fact in declarations.facts(self._context(), cond, over):
            self._check_coords(tuple(a.var for a in fact.over))
            self._note_dims(fact.cond, *(a.extent for a in fact.over))
            self._facts.append(fact)

    # ---- loops and calls --------------------------------------------------------------------

    @contextmanager
    def loop(self, name: str, extent: ExprLike) -> Iterator[Var]:
        """Run the calls of the block for name = 0 .. extent-1, in order."""
        self._check_name(name, "loop")
        e = calls.extent_expr(self._context(), extent, f"the extent of loop '{name}'")
        calls.check_scope(self._context(), (e,), (), f"the extent of loop '{name}'")
        if loads_of(e):
            raise BadGrid(f"the extent of loop '{name}' is read from run-time data: {e}")
        self._note_dims(e)
        self._names[name] = "loop"
        self._loops.append(name)
        self._blocks.append([])
        try:
            yield Var(name)
        finally:
            self._loops.pop()
            body = self._blocks.pop()
        if not body:
            raise BadGrid(f"loop '{name}' has no calls")
        self._blocks[-1].append(Loop(name, e, tuple(body)))

    def call(
        self,
        kind: Task,
        *,
        grid: object = None,
        reads: object = (),
        writes: object = (),
        accumulates: object = (),
        waits: object = None,
        notifies: object = None,
        unordered: bool = False,
        name: str | None = None,
        **unknown: object,
    ) -> None:
        """Run a grid of tasks of one kind. Regions are lambdas of the tile coordinates."""
        if unknown:
            raise BadCall(f"p.call has no argument {sorted(unknown)[0]!r}")
        if not isinstance(kind, Task):
            raise BadCall(f"{kind!r} is not a task kind", hint="decorate the body with @et.task")
        if grid is None:
            raise BadGrid(f"the call of {kind.name} has no grid", hint="give grid=(extent, ..)")
        given = {"reads": reads, "accumulates": accumulates, "writes": writes}
        given = {k: () if v is None else v for k, v in given.items()}
        edges = {k: v for k, v in (("waits", waits), ("notifies", notifies)) if v is not None}
        call = self._call(kind, grid, given, edges, bool(unordered), name)
        self._names[call.name] = "call"
        self._blocks[-1].append(call)

    def _call(
        self,
        kind: Task,
        grid: object,
        given: dict[str, object],
        edges: dict[str, object],
        unordered: bool,
        name: str | None,
    ) -> Call:
        ctx = self._context()
        chosen = self._unique_name(kind.name) if name is None else self._check_name(name, "call")
        entries = calls.grid_entries(grid)
        coords = calls.coordinates(entries, {**given, **edges})
        self._check_coords(coords)
        axes = calls.grid_axes(ctx, entries, coords)
        found = {k: calls.regions(ctx, v, coords, k) for k, v in {**given, **edges}.items()}
        found = {k: tuple(r.mark_in_bounds(axes) for r in v) for k, v in found.items()}
        calls.check_roles(chosen, found, axes, unordered)
        ir_regions = {k: tuple(r.region for r in v) for k, v in found.items()}
        self._note_dims(*(a.extent for a in axes))
        for group in ir_regions.values():
            self._note_dims(*(e for r in group for e in region_exprs(r)))
        scope: dict[str, Node] = {**self._dims, **{v: Var(v) for v in (*self._loops, *coords)}}
        body = trace_body(kind, _operands(found), scope)
        calls.check_captures(chosen, body, axes, ir_regions)
        place = user_place()
        if kind.cuda_body is not None:
            check_cuda_body(kind.cuda_body, body.read_names, chosen, place)
        return Call(
            name=chosen,
            kind=kind.name,
            grid=axes,
            reads=ir_regions["reads"],
            accumulates=ir_regions["accumulates"],
            writes=ir_regions["writes"],
            body=body,
            unordered=unordered,
            waits=ir_regions.get("waits"),
            notifies=ir_regions.get("notifies"),
            cpp_body=kind.cpp_body,
            cuda_body=kind.cuda_body,
            place=place,
        )

    # ---- the result -------------------------------------------------------------------------

    def build(self) -> ir.program.Program:
        """The frozen program."""
        if self._loops:
            raise BadGrid(f"the program is built inside loop '{self._loops[-1]}'")
        return ir.program.Program(
            self.name,
            tuple(self._tensors.values()),
            tuple(self._events.values()),
            tuple(self._facts),
            tuple(self._blocks[0]),
        )

    def __str__(self) -> str:
        return str(self.build())

    # ---- names ------------------------------------------------------------------------------

    def _context(self) -> calls.CallContext:
        return calls.CallContext(self, tuple(self._loops), self._tensors)

    def _check_name(self, name: object, what: str) -> str:
        if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
            raise BadName(f"{name!r} is not a name for a {what}")
        if what in ("dim", "loop"):
            _check_reserved(name, what)
        if name in self._names:
            raise BadName(f"the name '{name}' is taken by a {self._names[name]}")
        return name

    def _unique_name(self, base: str) -> str:
        name, k = base, 2
        while name in self._names:
            name, k = f"{base}_{k}", k + 1
        return name

    def _check_coords(self, coords: tuple[str, ...]) -> None:
        if len(set(coords)) != len(coords):
            raise BadName(f"coordinates {coords} repeat")
        for c in coords:
            taken = self._names.get(c)
            is_open = taken == "loop" and c in self._loops
            if taken not in (None, "call", "loop") or is_open:
                raise BadName(f"the coordinate '{c}' has the name of a {taken}")
            _check_reserved(c, "coordinate")
        self._coords.update(coords)

    def _note_dims(self, *exprs: Node) -> None:
        for d in dims_of(*exprs):
            if self._dims.get(d.name) == d:
                continue
            if d.name in self._dims:
                raise BadDim(f"dim '{d.name}' has two ranges in one program")
            self._check_name(d.name, "dim")
            if d.name in self._coords:
                raise BadName(f"the dim '{d.name}' has the name of a coordinate")
            self._names[d.name] = "dim"
            self._dims[d.name] = d


def _check_reserved(name: str, what: str) -> None:
    if RESERVED.fullmatch(name):
        raise BadName(
            f"the {what} '{name}' has a reserved name",
            hint="c0, c1, .. name the coordinates of cells; w0, .. and _r0, .. are taken too",
        )


def _operands(found: dict[str, tuple[RegionRef, ...]]) -> tuple[Operand, ...]:
    modes = (("reads", ArgMode.read), ("accumulates", ArgMode.accumulate),
             ("writes", ArgMode.write))
    out = []
    for key, mode in modes:
        for r in found[key]:
            assert isinstance(r.target, Tensor)
            out.append(Operand(mode, r.region, r.target))
    return tuple(out)

