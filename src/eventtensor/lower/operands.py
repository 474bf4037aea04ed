"""The arguments of a body: views of regions, and copies where the meaning asks for them.

Reads happen at the start of a task and writes at its end. Reading through a view is the same thing
unless the task also writes that place; then the region is copied first. A write is staged where
the body itself loads indices from the tensor it writes, and an accumulation where rounding to
storage must happen once; where other tasks may add at the same time, the stage holds what this one
adds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..ir import tile as t
from ..ir.body_uses import Uses
from ..ir.expr import Const, Var, mul, product
from ..ir.tensor import DType, Region, Rows, Slice, Tensor, apart, tile_shape
from ..kernel_ir import buffers as bf
from ..kernel_ir import scalar_values as v
from ..kernel_ir import statements as st
from ..kernel_ir.distributions import Linear
from ..kernel_ir.names import cpp_name
from ..kernel_ir.scopes import Space
from .builder import Builder
from .tiles import Tile, of_view, scalar


@dataclass(frozen=True, slots=True)
class Target:
    """Where stores of an argument go, and the real place if that is a stage, to which what is in it
    is assigned or, with `adds`, added."""

    view: bf.View
    type: t.TileType
    home: bf.View | None = None
    adds: bool = False


@dataclass(frozen=True)
class Operands:
    """`given` are arguments that the frame has brought, by their numbers; `tables` of gathered rows
    it has made. Elements of `tagged` tensors are words that carry flags."""

    b: Builder
    given: Mapping[int, bf.View]
    tables: set[str]
    tagged: frozenset[str]
    targets: dict[int, Target] = field(default_factory=dict)

    def name(self, k: int) -> str:
        name = self.b.call.body.args[k].name
        taken = name in self.b.placed.vars or not name.isidentifier()
        return f"arg{k}" if taken else cpp_name(name)

    def type(self, k: int) -> t.TileType:
        region = self.b.call.regions[k]
        shape = tile_shape(region, self.b.program.tensor(region.tensor))
        return t.TileType(self.b.call.body.args[k].type.dtype, shape)

    def overwritten(self, k: int) -> bool:
        """True if the task may write the place of argument k as another one."""
        args, regions = self.b.call.body.args, self.b.call.regions
        return any(
            j != k
            and arg.mode is not t.ArgMode.read
            and r.tensor == regions[k].tensor
            and not apart(r, regions[k])
            for j, (arg, r) in enumerate(zip(args, regions, strict=True))
        )

    def read(self, k: int) -> Tile:
        """Argument k at the start of the task."""
        if k in self.given:
            return of_view(self.given[k], self.type(k))
        view = self.view(k, bf.Form.descriptor)
        self.b.emit(st.Bind(view, reads=True))
        value = of_view(view, self.type(k))
        if not self.overwritten(k):
            return value
        copy = self.b.allocate(f"{view.name}_tile", view.extents, view.buffer.dtype)
        self.b.fill(copy, value)
        return of_view(copy, self.type(k))

    def write(self, k: int, uses: Uses) -> None:
        """Argument k as a target of stores or accumulation."""
        type, region = self.type(k), self.b.call.regions[k]
        tagged = region.tensor in self.tagged
        home = self.view(k, bf.Form.tagged if tagged else bf.Form.descriptor)
        self.b.emit(st.Bind(home, reads=False))
        if not self._staged(k, uses):
            self.targets[k] = Target(home, type)
            return
        stage = self.b.allocate(f"{home.name}_stage", type.shape, type.dtype)
        accumulates = self.b.call.body.args[k].mode == t.ArgMode.accumulate
        adds = self.b.call.unordered and accumulates
        zero = scalar(v.Literal(0, type.dtype), type)
        self.b.fill(stage, zero if adds else of_view(home, type))
        self.targets[k] = Target(stage, type, home, adds)

    def finish(self) -> None:
        """Stages go to their places."""
        for target in self.targets.values():
            if target.home is None:
                continue
            staged = of_view(target.view, target.type)
            if target.adds:
                self.b.add(target.home, staged, atomic=True)
            else:
                self.b.fill(target.home, staged)

    def view(self, k: int, form: bf.Form) -> bf.View:
        """Of the region of argument k."""
        region, name = self.b.call.regions[k], self.name(k)
        tensor = self.b.program.tensor(region.tensor)
        shape = tile_shape(region, tensor)
        for e in shape:
            self.b.extent(e)
        return region_view(name, region, tensor, form, shape, self._tables(name, region, tensor))

    def _tables(self, name: str, region: Region, tensor: Tensor) -> tuple[bf.Table | None, ...]:
        """Offsets of gathered rows, made unless the frame has."""
        found: list[bf.Table | None] = []
        for k, axis in enumerate(region.axes):
            if isinstance(axis, Slice):
                found.append(None)
            if not isinstance(axis, Rows):
                continue
            table = f"{name}_rows{k}"
            found.append(bf.Table(table, Const(0)))
            if table in self.tables:
                continue
            to = self.b.allocate(table, (axis.extent,), DType.i64)
            offset = mul(axis.index, product(tensor.shape[k + 1 :]))
            store = st.Store(to, (Var(axis.var),), v.Number(offset, DType.i64))
            self.b.emit(st.Elements((st.Axis(axis.var, axis.extent),), Linear(), (store,)))
            self.tables.add(table)
        return tuple(found) if any(found) else ()

    def _staged(self, k: int, uses: Uses) -> bool:
        arg, call = self.b.call.body.args[k], self.b.call
        if call.regions[k].tensor in uses.loads:
            return True
        if arg.mode != t.ArgMode.accumulate or call.unordered:
            return False
        return arg.storage is not arg.type.dtype and _adds(call.body.stmts, k, 1) > 1


def region_view(
    name: str,
    region: Region,
    tensor: Tensor,
    form: bf.Form,
    shape: v.Index,
    tables: tuple[bf.Table | None, ...],
) -> bf.View:
    strides = tuple(
        Const(0) if isinstance(axis, Rows) else product(tensor.shape[k + 1 :])
        for k, axis in enumerate(region.axes)
        if isinstance(axis, Rows | Slice)
    )
    buffer = bf.Buffer(tensor.name, Space.device, tensor.dtype, tensor.shape)
    return bf.View(name, buffer, shape, strides, tables, form, region)


def stored_once(body: t.Body, arg: int) -> bool:
    """True if one statement, outside all loops, assigns all elements of a write."""
    stores = [s for s in t.all_stmts(body.stmts) if isinstance(s, t.Store) and s.arg == arg]
    whole = tuple(Slice(Const(0), e) for e in body.args[arg].type.shape)
    return len(stores) == 1 and stores[0] in body.stmts and stores[0].axes == whole


def _adds(stmts: tuple[t.Stmt, ...], arg: int, weight: int) -> int:
    """Accumulate statements for an argument; one in a loop counts twice."""
    total = 0
    for s in stmts:
        if isinstance(s, t.Accumulate) and s.arg == arg:
            total += weight
        elif isinstance(s, t.For):
            total += _adds(s.body, arg, 2)
    return total
