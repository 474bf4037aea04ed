"""A tile body as kernel IR. Chains of element-wise ops become one loop, views cost nothing, and
what is read more than once is a tile of the arena."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from ..ir import tile as t
from ..ir.body_uses import Uses, analyse, read_arguments, stmt_operands
from ..ir.program import PlacedCall, Program
from ..ir.tensor import DType
from ..kernel_ir import buffers as bf
from ..kernel_ir import scalar_values as v
from ..kernel_ir import statements as st
from .builder import Builder
from .folds import direct_targets
from .lower_ops import LOWERED, Ops
from .operands import Operands, stored_once
from .tiles import Tile, of_view, scalar


@dataclass(frozen=True)
class Prologue:
    """What the frame has done when a body begins: `given` arguments that it has brought, `tables`
    of gathered rows, and names up to number `count`. `holds_stages`: the task has stages of the
    weight pipeline to give back. `enter` gives the waits at the start of a loop's iteration."""

    waits: st.Waits
    given: dict[int, bf.View]
    tables: set[str]
    count: int
    holds_stages: bool
    enter: Callable[[t.For], st.Waits | None]


def is_lowered(placed: PlacedCall, tagged: frozenset[str]) -> bool:
    """True if every statement of a body has nodes."""
    call = placed.call
    ops = [s.op for s in t.all_stmts(call.body.stmts) if isinstance(s, t.Let)]
    if not all(isinstance(op, LOWERED) for op in ops):
        return False
    if any(r.pad is not None for r in call.regions):
        return False
    return all(
        stored_once(call.body, k)
        for k, (a, r) in enumerate(zip(call.body.args, call.regions, strict=True))
        if a.mode != t.ArgMode.read and r.tensor in tagged
    )


def lower_body(
    program: Program,
    placed: PlacedCall,
    prologue: Prologue,
    tagged: frozenset[str],
    threads: int,
    debug: bool,
) -> st.Function:
    b = Builder(program, placed, threads, debug)
    b.emit(prologue.waits)
    b.named[0] |= {x.expr for x in prologue.waits.names}
    b.count = prologue.count
    operands = Operands(b, prologue.given, prologue.tables, tagged)
    BodyLowering(b, operands, prologue.enter).run()
    if prologue.holds_stages:
        b.emit(st.ReleaseStages())
    return st.Function(placed, threads, tuple(b.body))


class BodyLowering:
    """The statements of one body, in order."""

    def __init__(
        self, b: Builder, operands: Operands, enter: Callable[[t.For], st.Waits | None]
    ) -> None:
        self.b, self.operands, self.enter = b, operands, enter
        self.stmts = b.call.body.stmts
        self.uses: Uses = analyse(b.call.body)
        self.ops = Ops(b, self.uses.count.copy())
        self.values, self.left = self.ops.values, self.ops.left

    def run(self) -> None:
        wanted = read_arguments(self.b.call.body)
        for k, arg in enumerate(self.b.call.body.args):
            if arg.mode != t.ArgMode.read:
                self.operands.write(k, self.uses)
            elif k in wanted:
                self.ops.reads[k] = self.operands.read(k)
        self.ops.direct = direct_targets(self.b, self.operands, self.uses)
        self.block(self.stmts)
        self.operands.finish()

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
                case t.Store(arg, axes, value):
                    if value not in self.ops.direct:
                        view = self.operands.targets[arg].view
                        self.ops.store(view, axes, self.values[value], f"out{arg}")
                case t.Accumulate(arg, value):
                    target = self.operands.targets[arg]
                    shared = self.b.call.unordered and target.home is None
                    self.b.add(target.view, self.values[value], atomic=shared)
                case _:
                    assert_never(s)

    def let(self, s: t.Let) -> None:
        value = self.ops.op(s.id, s.op, s.type)
        simple = isinstance(s.op, t.Literal | t.Broadcast | t.Reshape)
        if value.is_scalar:
            named = value.at(()) == v.Name(f"%{s.id}", s.type.dtype)
            if not named and not (simple and s.id not in self.uses.named):
                value = self.b.stored(s.id, value)
        elif not value.cheap and s.id in self.uses.again:
            value = self.b.stored(s.id, value)
        self.values[s.id] = value

    # ---- loops ---------------------------------------------------------------------------------

    def loop(self, s: t.For) -> None:
        var = f"%{s.var}"
        self.b.extent(s.extent)
        for c in s.carries:
            self.values[c.phi] = self.begin(c)
        self.b.local.append({f"v{c.phi}" for c in s.carries})
        counter = v.Name(var, DType.i64)
        self.values[s.var] = scalar(counter, t.TileType(DType.i64, ()))
        with self.b.iteration(var) as body:
            waits = self.enter(s)
            if waits is not None:
                self.b.emit(waits)
            self.block(s.body)
            for c in s.carries:
                self.left[c.next] -= 1
            self.hand_on(s.carries)
        self.b.emit(st.For(var, s.extent, tuple(body)))
        self.b.local.pop()
        for c in s.carries:
            self.b.local[-1].add(f"v{c.phi}")
            self.end(c)

    def begin(self, c: t.Carry) -> Tile:
        init = self.values[c.init]
        if not c.type.shape:
            self.b.emit(st.Let(f"%{c.phi}", init.at(()), changes=True))
            return scalar(v.Name(f"%{c.phi}", c.type.dtype), c.type)
        view = self.b.own(f"v{c.phi}", c.type)
        self.b.fill(view, init)
        return of_view(view, c.type)

    def end(self, c: t.Carry) -> None:
        value = self.values[c.phi]
        if not c.type.shape and c.out in self.uses.named:
            self.b.emit(st.Let(f"%{c.out}", v.Name(f"%{c.phi}", c.type.dtype)))
            value = scalar(v.Name(f"%{c.out}", c.type.dtype), c.type)
        self.values[c.out] = value

    def hand_on(self, carries: tuple[t.Carry, ...]) -> None:
        """All next values together: what reads another carried tile is copied aside first."""
        phis = {f"v{c.phi}" for c in carries}
        ready: list[tuple[bf.View, Tile]] = []
        for c in (c for c in carries if c.type.shape):
            value, home = self.values[c.next], self.values[c.phi].view
            assert home is not None
            if value.view == home:
                continue
            others = phis - {home.buffer.name}
            if any(value.reads_buffer(name) for name in others) or not value.reads_own(
                home.buffer.name
            ):
                view = self.b.allocate(f"n{c.phi}", c.type.shape, c.type.dtype)
                self.b.fill(view, value)
                value = of_view(view, c.type)
            ready.append((home, value))
        for home, value in ready:
            self.b.fill(home, value)
        scalars = [c for c in carries if not c.type.shape]
        for c in scalars:
            self.b.emit(st.Let(f"$n{c.phi}", self.values[c.next].at(())))
        for c in scalars:
            self.b.emit(st.Assign(f"%{c.phi}", v.Name(f"$n{c.phi}", c.type.dtype)))
