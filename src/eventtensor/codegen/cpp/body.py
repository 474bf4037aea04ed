"""Tile bodies as C++ loops. Element-wise chains become one loop; views cost nothing; temporaries
come from the worker's arena, sized by run-time extents.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from ...ir import tile as t
from ...ir.body_uses import stmt_operands
from ...ir.expr import Const, Node, add
from ...ir.ops import operands
from ...ir.tensor import DType, Point, Slice
from ...ir.walk import free_vars
from . import value as cv
from .fold import FoldWriter
from .lowering import CPP
from .value import STORAGE, Index, Value, View, ctype, elsewhere, merged, of_view, scalar


class BodyWriter(FoldWriter):
    """`lowering`: what a back end writes for each op."""

    lowering = CPP

    def hold_stages(self) -> dict[int, Value]:
        """Arguments that the task holds in stages of the weight pipeline until it ends."""
        return {}

    def write(self) -> None:
        """The whole body: arguments, statements, staged writes."""
        args = self.call.body.args
        wanted = {
            s.op.arg for s in t.all_stmts(self.call.body.stmts)
            if isinstance(s, t.Let) and isinstance(s.op, t.Arg) and self.uses.is_used(s.id)
        }
        for k, arg in enumerate(args):
            if arg.mode == t.ArgMode.read:
                if k in wanted:
                    self.reads[k] = self.args.read(k, storage=True)
            else:
                self.targets[k] = self.args.write(k, self.uses)
        self.direct = self.direct_stores()
        self.block(self.call.body.stmts)
        self.args.finish(self.targets)

    def block(self, stmts: tuple[t.Stmt, ...]) -> None:
        for s in stmts:
            for x in stmt_operands(s):
                self.left[x] -= 1
            match s:
                case t.Let():
                    if self.uses.is_used(s.id):
                        self.let(s)
                case t.For():
                    self.loop(s)
                case t.Store(_, _, value) if value in self.direct:
                    pass
                case t.Store(arg, axes, value):
                    whole, view = self.call.body.args[arg].type, self.targets[arg].view
                    self.fill(self.sub(view, axes, whole, f"out{arg}"), self.values[value])
                case t.Accumulate(arg, value):
                    target = self.targets[arg]
                    shared = self.call.unordered and target.home is None
                    self.add(target.view, self.values[value], shared)
                case _:
                    assert_never(s)

    def let(self, s: t.Let) -> None:
        value = self.op(s.id, s.op, s.type)
        if value.is_scalar:
            if value.at(()) != f"v{s.id}" and not self._plain(s):
                value = self.stored(s.id, value)
        elif not value.cheap and s.id in self.uses.again:
            value = self.stored(s.id, value)
        self.values[s.id] = value

    def _plain(self, s: t.Let) -> bool:
        """Literals and repeated names need no constant of their own."""
        simple = isinstance(s.op, t.Literal | t.Broadcast | t.Reshape)
        return simple and s.id not in self.uses.named

    # ---- ops -------------------------------------------------------------------------------

    def op(self, id: int, op: t.Op, type: t.TileType) -> Value:
        return self.lowering[op.__class__](self, id, op, type)

    def elementwise(
        self, op: t.Unary | t.Binary | t.Where | t.Cast, type: t.TileType
    ) -> Value:
        args = [self.values[x] for x in operands(op)]
        dtype = args[-1].type.dtype

        def at(index: Index) -> str:
            x = [a.at(index) for a in args]
            match op:
                case t.Unary(name, _) | t.Binary(name, _, _):
                    return cv.elementwise(name, x, dtype)
                case t.Where():
                    return f"({x[0]} ? {x[1]} : {x[2]})"
                case t.Cast(_, to):
                    return cv.cast(x[0], to)
                case _:
                    assert_never(op)

        storage = cv.packed(op.dtype) if isinstance(op, t.Cast) else None
        return Value(type, at, merged(*(a.leaves for a in args)), None, False, storage)

    def reshape(self, id: int, x: Value, type: t.TileType) -> Value:
        if not cv.long_axes(type):  # one element on both sides
            zeros = ("0",) * len(x.type.shape)
            at = lambda _: x.at(zeros)
            return Value(type, at, elsewhere(x.leaves), None, x.cheap, x.storage)
        view = x.view
        if view is None and x.cheap and cv.long_axes(x.type) == cv.long_axes(type):
            return cv.with_ones(x, type)
        split = None if view is not None else cv.split(x, type)
        if split is not None:
            return split
        if view is None or not view.dense:
            view = self.stored(id, x).view
            assert view is not None
        view = replace(view, strides=self.row_major(type))
        return replace(of_view(view, type), leaves={view.buffer: False})

    def slice(self, id: int, x: Value, axes: tuple[t.SubAxis, ...], type: t.TileType) -> Value:
        if x.view is not None:
            view = self.sub(x.view, axes, x.type, f"v{id}")
            return replace(of_view(view, type), leaves=elsewhere(x.leaves))
        starts = [self.start(a, n) for a, n in zip(axes, x.type.shape, strict=True)]

        def at(index: Index) -> str:
            rest = iter(index)
            full = tuple(
                s if isinstance(a, Point) else _plus(s, next(rest))
                for a, s in zip(axes, starts, strict=True)
            )
            return x.at(full)

        return Value(type, at, elsewhere(x.leaves), None, x.cheap, x.storage)

    def start(self, axis: t.SubAxis, extent: Node) -> str:
        """First index of a sub-tile. One that a value of the body decides is not proved: it is kept
        inside the tile, and in debug reported."""
        first = _first(axis)
        text = self.extent(first)
        if not any(v.startswith("%") for v in free_vars(first)):
            return text
        n = self.extent(extent if isinstance(axis, Point) else add(extent, Const(1)))
        return self.index_in(text, n)

    def index_in(self, index: str, n: str) -> str:
        if self.expr.debug:
            return f"et::index_checked(worker, {index}, {n})"
        return f"et::index_clamped({index}, {n})"

    def sub(
        self, view: View, axes: tuple[t.SubAxis, ...], whole: t.TileType, name: str
    ) -> View:
        """The part of a view of type `whole` at `axes`; points drop their axis."""
        data, strides = [view.data], list[str]()
        tables: list[str | None] = []
        for k, a in enumerate(axes):
            start, table = self.start(a, whole.shape[k]), view.table(k)
            if table is not None:
                if isinstance(a, Point):
                    data.append(f"{table}[{start}]")
                else:
                    tables.append(table if start == "0" else f"({table} + {start})")
                    strides.append("0")
                continue
            if start != "0" and view.strides[k] != "0":
                data.append(start if view.strides[k] == "1" else f"{start} * {view.strides[k]}")
            if isinstance(a, Slice):
                tables.append(None)
                strides.append(view.strides[k])
        pointer = view.data
        if len(data) > 1:
            pointer = f"{name}_at{self.number()}"
            self.out.line(f"const auto {pointer} = {' + '.join(data)};")
        kept = tuple(tables) if any(x is not None for x in tables) else ()
        return View(pointer, tuple(strides), view.storage, view.buffer, kept)

    def matmul(self, id: int, a: int, b: int, type: t.TileType) -> Value:
        left, right = self.matrix(a), self.matrix(b)
        k = self.extent(self.values[a].type.shape[1])
        m, n = (self.extent(s) for s in type.shape)
        result = self.own(f"v{id}", type)
        self.out.matmul_room(left.storage, right.storage)
        sides = ", ".join(
            f"et::Matrix<{STORAGE[x.storage]}>{{{x.data}, {x.strides[0]}, {x.strides[1]}}}"
            for x in (left, right)
        )
        self.out.line(f"et::matmul(worker.arena, v{id}, {sides}, {m}, {k}, {n});")
        return of_view(result, type)

    def gather(self, x: Value, index: Value, axis: int, type: t.TileType) -> Value:
        rank, n = len(index.type.shape), self.extent(x.type.shape[axis])

        def at(i: Index) -> str:
            pick = self.index_in(f"int64_t({index.at(i[axis : axis + rank])})", n)
            return x.at((*i[:axis], pick, *i[axis + rank :]))

        leaves = elsewhere(merged(x.leaves, index.leaves))
        return Value(type, at, leaves, None, False, x.storage)

    def concat(self, id: int, xs: list[Value], axis: int, type: t.TileType) -> Value:
        result = self.own(f"v{id}", type)
        start: Node = Const(0)
        for x in xs:
            part = tuple(
                Slice(start if k == axis else Const(0), s) for k, s in enumerate(type.shape)
            )
            self.fill(self.sub(result, part, type, f"v{id}"), x)
            start = add(start, x.type.shape[axis])
        return of_view(result, type)

    def update(
        self, id: int, x: int, axes: tuple[t.SubAxis, ...], value: Value, type: t.TileType
    ) -> Value:
        """In place if nobody reads the old tile any more."""
        old = self.values[x]
        if self.is_dead(x) and old.view is not None:
            tile = old.view
            if tile.buffer in value.leaves:
                fresh = self.temp(f"v{id}_new", value.type)
                self.fill(fresh, value)
                value = of_view(fresh, value.type)
        else:
            tile = self.own(f"v{id}", type)
            self.fill(tile, old)
        self.fill(self.sub(tile, axes, type, f"v{id}"), value)
        return of_view(tile, type)

    def is_dead(self, x: int) -> bool:
        """True if x is a whole tile of ours that no later statement can see."""
        view = self.values[x].view
        if view is None or not view.dense or view.data != view.buffer or self.left[x] > 0:
            return False
        if view.buffer not in self.local[-1] or view.strides != self.row_major(self.values[x].type):
            return False
        return not any(
            self.left[y] > 0 and view.buffer in other.leaves
            for y, other in self.values.items() if y != x
        )

    # ---- loops -----------------------------------------------------------------------------

    def loop(self, s: t.For) -> None:
        n = self.extent(s.extent)
        for c in s.carries:
            self.values[c.phi] = self.begin(c)
        if s.carries or s.body:
            self.out.line(f"const et::Arena::Mark m{s.var} = worker.arena.mark();")
        self.local.append({f"v{c.phi}" for c in s.carries})
        self.values[s.var] = scalar(f"v{s.var}", t.TileType(DType.i64, ()))
        head = f"for (int64_t v{s.var} = 0; v{s.var} < {n}; ++v{s.var})"
        with self.scope(self.out.rolled + head):
            self.enter(s)
            self.out.line(f"worker.arena.rewind(m{s.var});")
            self.block(s.body)
            for c in s.carries:
                self.left[c.next] -= 1
            self.hand_on(s.carries)
        self.local.pop()
        for c in s.carries:
            self.local[-1].add(f"v{c.phi}")
            self.end(c)

    def begin(self, c: t.Carry) -> Value:
        init = self.values[c.init]
        if not c.type.shape:
            self.out.line(f"{ctype(c.type.dtype)} v{c.phi} = {init.at(())};")
            return scalar(f"v{c.phi}", c.type)
        view = self.own(f"v{c.phi}", c.type)
        self.fill(view, init)
        return of_view(view, c.type)

    def end(self, c: t.Carry) -> None:
        value = self.values[c.phi]
        if not c.type.shape and c.out in self.uses.named:
            self.out.line(f"const {ctype(c.type.dtype)} v{c.out} = v{c.phi};")
            value = scalar(f"v{c.out}", c.type)
        self.values[c.out] = value

    def hand_on(self, carries: tuple[t.Carry, ...]) -> None:
        """All next values together: what reads another carried tile is copied aside first."""
        phis = {f"v{c.phi}" for c in carries}
        tiles = [c for c in carries if c.type.shape]
        ready: list[tuple[t.Carry, Value]] = []
        for c in tiles:
            value, mine = self.values[c.next], f"v{c.phi}"
            if value.view is not None and value.view == self.values[c.phi].view:
                continue
            touched = {b: same for b, same in value.leaves.items() if b in phis}
            if any(b != mine or not same for b, same in touched.items()):
                view = self.temp(f"n{c.phi}", c.type)
                self.fill(view, value)
                value = of_view(view, c.type)
            ready.append((c, value))
        for c, value in ready:
            home = self.values[c.phi].view
            assert home is not None
            self.fill(home, value)
        scalars = [c for c in carries if not c.type.shape]
        for c in scalars:
            kind = ctype(c.type.dtype)
            self.out.line(f"const {kind} n{c.phi} = {self.values[c.next].at(())};")
        for c in scalars:
            self.out.line(f"v{c.phi} = n{c.phi};")


def _first(axis: t.SubAxis) -> Node:
    return axis.index if isinstance(axis, Point) else axis.start


def _plus(a: str, b: str) -> str:
    if a == "0":
        return b
    return a if b == "0" else f"{a} + {b}"

