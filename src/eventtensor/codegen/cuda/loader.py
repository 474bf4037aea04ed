"""The program of the producer warp: it visits the grids as the tasks do, and loads operands where
they compute."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from ...ir.best import best_of
from ...ir.expr import Const, Load, Node, Var, add, floordiv, mul
from ...ir.index_tables import placement_exprs
from ...ir.layout import layout_of, panel_stride, row_stride
from ...ir.loop_operands import loop_operand
from ...ir.plan import Stream, StreamKind
from ...ir.products import BUNDLES, MOST_SPAN, PANEL, Product, product_of
from ...ir.program import Item, Loop, PlacedCall
from ...ir.tensor import Region, Role, Tensor, region_exprs, tile_shape
from ...ir.tile import For
from ...ir.walk import loads_of
from ...render.index_text import ExprWriter, paren
from ...targets.cost_model import StreamCosts
from ..cpp.kernel import KernelWriter
from ..cpp.value import STORAGE
from ..emitter import cpp_name
from .batched_gemv import Run, runs_of, stepped
from .feed import FeedWriter
from .maps import RUN, Maps, PagedTensor
from .tables import Tables

_INLINE = "__device__ __forceinline__ "  # the state of the producer warp stays in registers
GROUP = BUNDLES[-1]  # panels of a page


@dataclass(frozen=True)
class TableExpr(ExprWriter):
    """Loads from these tensors, in the row that a grid reads, go by tables that lanes keep; those
    that stand in constants already by their names."""

    rows: Mapping[str, tuple[Node, ...]] = field(default_factory=dict)
    names: Mapping[Load, str] = field(default_factory=dict)

    def _load(self, e: Load) -> str:
        if e in self.names:
            return self.names[e]
        if self.rows.get(e.tensor) != e.index[:-1]:
            return super()._load(e)
        return f"{_here(e.tensor)}[{self(e.index[-1])}]"


def _here(tensor: str) -> str:
    """The name of the table of a tensor."""
    return f"{cpp_name(tensor)}_here"


class LoaderWriter:
    """Writes `load_x` (one task), `feed_x` (its grid) and `feed` (all of them) for every call with
    streams. The producer warp's variable is called `worker`, as in the code that it shares. `lends`
    says before which calls pages are lent to them; what it finds to be mapped goes to `maps`. Runs
    of products that are `joined`, by their call and first argument, share pages."""

    def __init__(
        self, kernel: KernelWriter, tables: Tables, lends: Callable[[str], bool], maps: Maps,
        joined: Collection[tuple[str, int]], costs: StreamCosts,
    ) -> None:
        self.kernel, self.tables, self.lends, self.maps = kernel, tables, lends, maps
        self.joined, self.costs = joined, costs
        self.streams = tables.streams
        self.out = kernel.out
        # The tasks check, the producer warp need not.
        self.expr = TableExpr(kernel.program, flagged=kernel.expr.flagged)
        self.sync = replace(kernel.sync, expr=self.expr)
        self.grids = replace(kernel.grids, expr=self.expr)

    def write(self) -> None:
        self.out.comment("---- what the loader does ".ljust(92, "-"))
        for p in self.kernel.program.calls:
            if p.call.name in self.streams:
                self.task(p)
                self.grid(p)
        with self.out.block(f"{_INLINE}bool feed(et::ProducerWarp& worker, const Args& args)"):
            self.items(self.kernel.program.body, ())
            self.out.line("return true;")
        self.out.line()

    def table_type(self, name: str) -> str:
        tensor = self.kernel.program.tensor(name)
        return f"et::LaneTable<{STORAGE[tensor.dtype]}, {self.expr(tensor.shape[-1])}>"

    def task(self, p: PlacedCall) -> None:
        o, name, plain = self.out, p.call.name, self.expr
        tables, hand = self.tables.of(p), self.by_hand(p)
        if hand is not None:
            hand.function()
        given = "".join(f", const {self.table_type(t)}& {_here(t)}" for t in tables)
        self.expr = replace(self.expr, rows=tables)
        with o.block(
            f"{_INLINE}void load_{name}"
            f"(et::ProducerWarp& worker, const Args& args{self.kernel.params(p.vars)}{given})"
        ):
            if self.kernel.is_ticket(p.call.name) and not self.tables.after(p):
                self.tell(p)
            if hand is not None:
                hand.write()
            else:
                self.operands(p)
        self.expr = plain
        o.line()

    def tell(self, p: PlacedCall) -> None:
        """Where the producer warp claims: the tile, and the values looked up for it."""
        names = {load: f"told{k}" for k, load in enumerate(self.tables.told(p))}
        for load, name in names.items():
            self.out.line(f"const int64_t {name} = {self.expr(load)};")
        self.out.line(f"worker.forward_tile({', '.join(names.values())});")
        self.expr = replace(self.expr, names=names)

    def operands(self, p: PlacedCall) -> None:
        """All of a task, in the order in which it uses them up."""
        streams = self.streams[p.call.name]
        runs = {run.args[0]: run for run in runs_of(p.call, streams, self.costs)
                if run.joined == 1 or (p.call.name, run.args[0]) in self.joined}
        loops, args = set[int](), set[int]()  # that are done
        for s in streams:
            page = loop_operand(p.call, s.arg) if s.kind is StreamKind.loop else None
            if s.arg in args:
                continue
            if s.arg in runs and self.run(p, s, runs[s.arg]):
                args.update(runs[s.arg].args)
            elif page is None:
                self.operand(p, s, p.call.regions[s.arg])
            elif page.loop.var not in loops:
                loops.add(page.loop.var)
                self.loop(p, page.loop)

    def by_hand(self, p: PlacedCall) -> FeedWriter | None:
        """What writes the producer of the call's custom body."""
        body = p.call.cuda_body
        return (
            None
            if body is None or body.producer is None
            else FeedWriter(
                self.out, self.expr, self.kernel.program, p, body.producer, body.headers
            )
        )

    def loop(self, p: PlacedCall, loop: For) -> None:
        """The pages of all operands that a loop walks, iteration by iteration."""
        v = cpp_name(f"%{loop.var}")
        with self.out.block(f"for (int64_t {v} = 0; {v} < {self.expr(loop.extent)}; ++{v})"):
            for s in self.streams[p.call.name]:
                page = loop_operand(p.call, s.arg) if s.kind is StreamKind.loop else None
                if page is not None and page.loop.var == loop.var:
                    self.operand(p, s, page.region)

    def run(self, p: PlacedCall, s: Stream, run: Run) -> bool:
        """The operands of a run of products by one loop, those that are joined at a time; false if
        they lie in no even order."""
        each = Var(f"%{run.ids[0]}")
        regions = [stepped(tuple(p.call.regions[k] for k in run.args), add(each, Const(k)))
                   for k in range(run.joined)]
        some = [r for r in regions if r is not None]
        if not some:
            return False
        v, (_, bytes, _) = cpp_name(each.name), self.rows(some[0])
        loop = f"int64_t {v} = 0; {v} < {len(run.args)}; {v} += {run.joined}"
        with self.out.block(f"ET_ROLLED for ({loop})"):
            for region in some:
                self.place(p, s, region)
            starts = ", ".join(self.start(region) for region in some)
            piece = run.of(s).stage_bytes // run.joined
            self.out.line(
                f"worker.run_on<{s.l2_prefetch_stages}, {s.burst_bytes_in_flight}>"
                f"({{{starts}}}, {bytes}, {piece});"
            )
        self.out.line("worker.follow();")
        return True

    def start(self, region: Region) -> str:
        layout = layout_of(region, self.kernel.program.tensor(region.tensor))
        assert layout is not None
        return f"args.{cpp_name(region.tensor)} + {paren(self.expr(layout.offset))}"

    def rows(self, region: Region) -> tuple[str, str, str]:
        """Rows of what lies there, their bytes and distance."""
        tensor = self.kernel.program.tensor(region.tensor)
        layout, size = layout_of(region, tensor), Const(tensor.dtype.size)
        assert layout is not None
        return (self.expr(layout.rows), self.expr(mul(layout.row, size)),
                self.expr(mul(layout.stride, size)))

    def place(self, p: PlacedCall, s: Stream, region: Region) -> None:
        """Before it is read where it lies."""
        self.out.comment(str(region))
        by_data = loads_of(*region_exprs(region), *placement_exprs(p, s))
        weight = self.kernel.program.tensor(region.tensor).role is Role.weight
        if (not weight or by_data) and not self.tables.after(p):
            self.out.line("worker.wait_for_tasks();")

    def operand(self, p: PlacedCall, s: Stream, region: Region) -> None:
        data, (rows, row, stride) = self.start(region), self.rows(region)
        self.place(p, s, region)
        match s.kind:
            case StreamKind.whole | StreamKind.loop:
                self.out.line(f"worker.whole({data}, {rows}, {row}, {stride});")
            case StreamKind.rows:
                rows, row, stride = self.matrix(p, s)
                self.out.line(
                    f"worker.rows({data}, {rows}, {row}, {stride}, {s.k_bytes_per_stage});"
                )
            case StreamKind.packed:
                self.packed(p, s, data, row)
            case StreamKind.hand:
                raise AssertionError("a text of its own brings it")
            case _:
                assert_never(s.kind)

    def packed(self, p: PlacedCall, s: Stream, data: str, bytes: str) -> None:
        if not s.is_b_streamed:
            self.out.line(
                f"worker.run<{s.l2_prefetch_stages}, {s.burst_bytes_in_flight}>"
                f"({data}, {bytes}, {s.stage_bytes});"
            )
            return
        product = product_of(p.call.body, s.arg)
        assert product is not None and isinstance(product.k, Const)
        size = p.call.body.args[s.arg].storage.size
        row, span = product.k.value * size, product.span * size
        panels = self.expr(floordiv(product.rows, PANEL))
        n = self.expr(product.columns)
        tensor = self.kernel.program.tensor(p.call.regions[s.arg].tensor)
        stride = self.expr(panel_stride(tensor))
        walk = f"et::GemmTraversal({panels}, {row}, {span}, {s.bundle}, {n})"
        whole = isinstance(product.rows, Const) and product.span == MOST_SPAN \
            and product.rows.value % (GROUP * PANEL) == 0
        if whole and s.bundle > 1:
            self.out.line(f"worker.bundles<{s.bundle}>({data}, {walk}, {stride});")
        else:
            mapped = self.mapped(tensor, product) if whole else ""
            self.out.line(f"worker.panels({data}, {walk}, {stride}{mapped});")

    def mapped(self, tensor: Tensor, product: Product) -> str:
        """Where panels lie apart, how one copy can bring a page of their pieces. (Those of two
        panels together are long enough for a copy each, which is quicker.)"""
        piece, width = PANEL * product.span * tensor.dtype.size, panel_stride(tensor)
        if not isinstance(width, Const) or width.value % RUN or tensor.role is not Role.weight:
            return ""
        number = self.maps.page(PagedTensor(tensor.name, width.value, piece, GROUP))
        return "" if number is None else f", et::Paged{{{number}, args.{cpp_name(tensor.name)}}}"

    def matrix(self, p: PlacedCall, s: Stream) -> tuple[str, str, str]:
        """Rows, their bytes and distance, also where they touch."""
        region = p.call.regions[s.arg]
        tensor = self.kernel.program.tensor(region.tensor)
        rows, k = tile_shape(region, tensor)
        row = mul(k, Const(tensor.dtype.size))
        return self.expr(rows), self.expr(row), self.expr(row_stride(region, tensor))

    def in_flight(self, p: PlacedCall) -> str:
        """The bytes that may be, as arguments: with many columns those of a rush, where a grid has
        begun."""
        s, *_ = every = self.streams[p.call.name]
        rushes = s.burst_bytes_in_flight != 0 and any(x.is_b_streamed for x in every)
        return f"<true>({s.burst_bytes_in_flight})" if rushes else f"({s.max_bytes_in_flight})"

    def grid(self, p: PlacedCall) -> None:
        o, name, plan = self.out, p.call.name, self.kernel.plan.call(p.call.name)
        loops = tuple(lp.var for lp in p.loops)
        with o.block(
            f"{_INLINE}bool feed_{name}"
            f"(et::ProducerWarp& worker, const Args& args{self.kernel.params(loops)})"
        ):
            o.line(f"worker.limit_bytes_in_flight{self.in_flight(p)};")
            if plan.header or self.kernel.is_ticket(p.call.name):
                o.line("worker.wait_for_tasks();")  # it gives the cells
            self.sync.waits(plan.header)
            tables, after = self.tables.of(p), self.tables.after(p)
            given = "".join(f", {_here(t)}" for t in tables)
            for t in tables:
                o.line(f"{self.table_type(t)} {_here(t)};")
            if not after:
                self.look_up(p, tables)
            if after:
                o.line("bool settled = false;")
            with self.grids.tiles(p.call, self.claim(p)):
                if after:
                    if self.kernel.is_ticket(p.call.name):
                        o.line("worker.forward_tile();")  # the tasks wait by themselves
                    self.settle(p, tables)
                o.line(f"load_{name}(worker, args{self.kernel.claim_args(p.vars)}{given});")
                o.line("if (worker.stopped()) return false;")
            o.line("return true;")
        o.line()

    def first(self, tensor: str, row: tuple[Node, ...]) -> str:
        """Where a row begins."""
        shape = self.kernel.program.tensor(tensor).shape
        at = self.expr.linear([*map(self.expr, row), "0"], shape)
        return f"args.{cpp_name(tensor)} + {paren(at)}"

    def settle(self, p: PlacedCall, tables: Mapping[str, tuple[Node, ...]]) -> None:
        """Once, and only for a tile: the tasks of this block then do the same waits, with a limit,
        before they ask for a page. The data that they guard is read then, or known without them."""
        with self.out.block("if (!settled)"):
            self.out.line("worker.wait_for_tasks();")
            self.sync.waits(self.tables.waited(p))
            self.look_up(p, tables)
            self.out.line("settled = true;")

    def look_up(self, p: PlacedCall, tables: Mapping[str, tuple[Node, ...]]) -> None:
        """Rows of tables; those that carry flags are there when all their numbers are, and what is
        found again when all are from which it is found."""
        again = self.tables.again(p)
        for t, at in tables.items():
            first = self.first(t, at)
            if t in again:
                self.out.line(f"if (!{self.found(t)}) return false;")
            elif t in self.expr.flagged:
                self.out.line(
                    f"if (!et::look_up_tagged(worker, {_here(t)}, {first})) return false;"
                )
            else:
                self.out.line(f"{_here(t)} = {self.table_type(t)}({first});")

    def found(self, tensor: str) -> str:
        program = self.kernel.program
        best = best_of(program, tensor)
        assert best is not None  # or the plan would have another hand-off
        source = program.tensor(best.region.tensor)
        layout = layout_of(best.region, source)
        assert layout is not None  # or it is not found so
        first = f"args.{cpp_name(source.name)} + {paren(self.expr(layout.offset))}"
        return f"et::find_best<{best.parts}, {best.size}, {best.apart}>(" \
               f"worker, {_here(tensor)}, {first})"

    def claim(self, p: PlacedCall) -> str:
        if self.kernel.is_ticket(p.call.name):
            return f"et::ClaimingScheduler(worker, {self.kernel.ticket(p)})"
        schedule = self.kernel.plan.call(p.call.name).schedule
        return f"et::StaticTiles(worker, {self.expr(schedule.shift)})"

    def items(self, items: tuple[Item, ...], loops: tuple[str, ...]) -> None:
        for item, begins in self.kernel.in_turn(items):
            if isinstance(item, Loop):
                if self._has_streams(item):
                    with self.out.block(self._loop(item.var, item.extent)):
                        self.items(item.body, (*loops, item.var))
                continue
            if begins and self.lends(item.name):
                self.out.line("if (!worker.lend_stages(et::BORROWED_STAGES)) return false;")
            if item.name in self.streams:
                self.out.line(f"if (!feed_{item.name}(worker, args"
                              f"{self.kernel.claim_args(loops)})) return false;")

    def _loop(self, var: str, extent: Node) -> str:
        v = cpp_name(var)
        return f"for (int64_t {v} = 0; {v} < {self.expr(extent)}; ++{v})"

    def _has_streams(self, loop: Loop) -> bool:
        return any(
            self._has_streams(i) if isinstance(i, Loop)
            else i.name in self.streams or self.lends(i.name)
            for i in loop.body
        )
