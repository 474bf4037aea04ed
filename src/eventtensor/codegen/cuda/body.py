"""Bodies of calls with streamed operands: held pages as dense tiles, and matrix products that use
up their pages. Everything else is as in any body.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial

from ...ir import tile as t
from ...ir.availability import DataAvailability
from ...ir.body_uses import needless_first, read_arguments
from ...ir.expr import Const, Node, add, maximum, mul
from ...ir.expr import product as extents
from ...ir.interval import numeric_bounds
from ...ir.loop_operands import loop_operand
from ...ir.plan import Stream, StreamKind, Wait
from ...ir.products import PANEL, Product, argument_of, product_of
from ...ir.program import PlacedCall, Program
from ...ir.tensor import DType, Rows, region_exprs
from ...render.index_text import ExprWriter
from ...targets.cost_model import StreamCosts
from ..cpp.sync import SyncWriter
from ..cpp.value import STORAGE, Value, View, of_view
from .batched_gemv import Run, runs_of
from .columns import Columns, ColumnsBody
from .constants import BATCH_SUMS, N128
from .emitter import BlockDialect
from .lowering import CUDA
from .maps import COLUMNS, Maps
from .pages import PageArgs
from .room import opens_beside
from .sources import source_of
from .threads import WARPS

_ALIGN = 64  # bytes: where what is taken of the arena begins
_PITCH = 192  # bytes that a column of the other side may lie further apart than it is long
_PASSES = dict(zip(("et::N16", "et::N64", "et::N128"), (*COLUMNS, N128), strict=True))


class StreamBody(ColumnsBody):
    """`streams` are those of the call, in the order of their pages. `follows`: a worker has tiles
    of it one after the other. First arguments of runs that share pages go to `joined`."""

    lowering = CUDA

    def __init__(
        self,
        out: BlockDialect,
        expr: ExprWriter,
        program: Program,
        placed: PlacedCall,
        streams: tuple[Stream, ...],
        maps: Maps,
        joined: set[int],
        follows: bool,
        costs: StreamCosts,
    ) -> None:
        super().__init__(out, expr, program, placed, maps)
        self.block_out, self.streams, self.follows = out, streams, follows
        self.joined = joined
        self.products: dict[int, tuple[Product, Stream]] = {}
        self.slices: dict[int, Stream] = {}  # by the slice that takes a page
        self.walked: set[int] = set()  # loops that take pages
        self.inside: list[int] = []  # loops that are open
        self.begun: set[int] = set()  # products whose lines are on their way
        self.straight: dict[int, t.Store] = {}  # of products that go to their place
        self.lent: Node = Const(0)  # the most bytes that a product takes and gives back
        for s in streams:
            if s.kind.is_product:
                found = product_of(self.call.body, s.arg)
                assert found is not None
                self.products[found.id] = (found, s)
            elif s.kind is StreamKind.loop:
                page = loop_operand(self.call, s.arg)
                assert page is not None
                self.slices[page.id] = s
                self.walked.add(page.loop.var)
        self.runs = {id: run for run in runs_of(self.call, streams, costs) for id in run.ids}
        self.hidden = frozenset(x for p, _ in self.products.values() for x in p.hidden)

    def hold_stages(self) -> dict[int, Value]:
        if any(s.is_streamed for s in self.streams):
            self.out.line("worker.pipeline.task_begin();")
        return {s.arg: self.hold(s) for s in self.streams if s.kind is StreamKind.whole}

    def write(self) -> None:
        loaded, held = any(s.is_streamed for s in self.streams), self.hold_stages()
        paged = frozenset({s.arg for s in self.streams} - held.keys())
        plain = {f.name: getattr(self.args, f.name) for f in fields(self.args)}
        self.args = PageArgs(**plain, held=held, paged=paged)
        for k in sorted(read_arguments(self.call.body) - paged - held.keys()):
            if self.call.regions[k].pad is None:
                self.regions.expect(self.args.name(k), self.call.regions[k])
        self.block_out.plain = self._stored_by_products()
        super().write()
        self.block_out.plain, self.block_out.together = frozenset(), False
        if self.lent != Const(0):
            self.block_out.taken.append((self.lent, "uint8_t"))
            self.block_out.inner = True
        if loaded and self.out.met():
            self.block_out.ends_met("worker.pipeline.task_end();")
        elif loaded:
            self.out.line("worker.pipeline.task_end();")

    def hold(self, s: Stream) -> Value:
        """A dense tile in the page that comes next."""
        name = self.args.name(s.arg)
        self.out.comment(f"{name} = {self.call.regions[s.arg]}, from the stream")
        return self.next_page(name, s, self.args.type(s.arg))

    def next_page(self, name: str, s: Stream, type: t.TileType) -> Value:
        dtype = self.call.body.args[s.arg].storage
        kind = STORAGE[dtype]
        self.out.line(f"const {kind}* const {name}_page = worker.pipeline.hold<{kind}>();")
        return of_view(View(f"{name}_page", self.row_major(type), dtype, name, (), True), type)

    def slice(self, id: int, x: Value, axes: tuple[t.SubAxis, ...], type: t.TileType) -> Value:
        if id not in self.slices:
            return super().slice(id, x, axes, type)
        return self.next_page(f"v{id}", self.slices[id], type)

    def loop(self, s: t.For) -> None:
        """What an iteration takes of the stream, it gives back at its end."""
        before = self.enter
        if s.var in self.walked:
            self.enter = partial(self._enter, before)
        self.inside.append(s.var)
        super().loop(s)
        self.inside.pop()
        self.enter = before

    def _enter(self, before: Callable[[t.For], None], s: t.For) -> None:
        before(s)
        if s.var in self.walked:
            self.out.line("worker.pipeline.task_begin();")

    def hand_on(self, carries: tuple[t.Carry, ...]) -> None:
        super().hand_on(carries)
        if self.inside[-1] in self.walked:
            self.out.line("worker.pipeline.task_end();")

    def block(self, stmts: tuple[t.Stmt, ...]) -> None:
        """Products that go straight to their place need no store."""
        if not self.inside:
            self.straight = {s.value: s for s in stmts if isinstance(s, t.Store) and self._goes(s)}
            stmts = tuple(s for s in stmts if s not in self.straight.values())
            stmts = self._while_lines_come(stmts)
        super().block(stmts)

    def _while_lines_come(self, stmts: tuple[t.Stmt, ...]) -> tuple[t.Stmt, ...]:
        """Writes what is before the first product; the others are left. Where its lines come late,
        for tile after tile or gathered, there is time for what hangs on no product."""
        first = self._first_product(stmts)
        if first is None or not self._by_lines(first):
            return stmts
        at = stmts.index(first)
        super().block(stmts[:at])
        if first.id not in self.begun:
            x = self.columns(*self.products[first.id])
            if not x.begins and not self.follows:
                return stmts[at:]
            self._set_off(first.id, x)
        elif not self.follows:
            return stmts[at:]
        return needless_first(stmts[at:], self.products.keys())

    def _goes(self, s: t.Store) -> bool:
        """True if a product can be stored as it is found: as elements, not as words with flags."""
        target, found = self.targets[s.arg], self.products.get(s.value)
        flags = self.args.has_flags(s.arg)
        return (
            found is not None
            and found[1].is_b_streamed
            and self.is_straight(s)
            and not flags
            and target.view.storage is DType.f32
            and len(target.type.shape) == 2
        )

    def _stored_by_products(self) -> frozenset[str]:
        """Of them each has a condition, and would make an address that hides its base anew."""
        stores = [s for s in self.call.body.stmts if isinstance(s, t.Store)]
        return frozenset(self.args.name(s.arg) for s in stores if s.value in self.products)

    def _first_product(self, stmts: tuple[t.Stmt, ...]) -> t.Let | None:
        return next((s for s in stmts if isinstance(s, t.Let) and s.id in self.products), None)

    def _by_lines(self, s: t.Let) -> bool:
        """True for a product whose other side comes line by line."""
        stream = self.products[s.id][1]
        return stream.is_b_streamed and stream.is_streamed

    def _set_off(self, id: int, x: Columns, ahead: str = "") -> None:
        """`ahead`: of a wait, the cell that tells when x is there."""
        product, stream = self.products[id]
        rows, n = self.extent(product.rows), self.extent(product.columns)
        kind, row, span = self._sizes(product, stream)
        how = "begin_activation_load_after" if ahead else "begin_activation_load"
        self.block_out.ends_met(f"et::{how}<{kind}, {row}, {span}>"
                                f"(worker, {x.matrix}, {rows}, {n}{x.mapped or x.begins}{ahead});")
        self.begun.add(id)
        self.maps.lacking |= not x.mapped

    def set_off_early(self, settled: DataAvailability, last: Wait, sync: SyncWriter) -> None:
        """Begins to load the activation tiles of the first product, if boxes of x as it lies are
        known before the last wait: the activation producers then wait for its one cell themselves.
        Nothing of x is read here."""
        first = self._first_product(self.call.body.stmts)
        if first is None or not self._by_lines(first) or self.expr.debug:
            return
        product, stream = self.products[first.id]
        arg, one = argument_of(self.call.body, product.other), sync.one_cell(last)
        if arg is None or one is None or arg in self.args.staged or self.args.overwritten(arg):
            return
        region = self.call.regions[arg]
        apart = region.pad is not None or any(isinstance(x, Rows) for x in region.axes)
        if apart or not settled.are_loads_known(*region_exprs(region), product.columns):
            return
        self.args.brought[arg] = self.reads[arg] = self.args.read(arg, storage=True)
        if not self._see(product.other):
            return
        view = self.values[product.other].view
        if view is not None and view.storage is self.call.body.args[stream.arg].storage:
            x = self.columns(product, stream)
            if x.mapped:
                self._set_off(first.id, x, f", {one}")

    def _see(self, id: int) -> bool:
        """The value of an argument in another shape, where it lies; false if it must be copied."""
        s = next(s for s in self.call.body.stmts if isinstance(s, t.Let) and s.id == id)
        match s.op:
            case t.Arg():
                pass
            case t.Transpose(x, _):
                if not self._see(x):
                    return False
            case t.Reshape(x):
                if not self._see(x) or self._joined(self.values[x], s.type) is None:
                    return False
            case _:
                return False
        self.values[id] = self.op(id, s.op, s.type)
        return True

    def _sizes(self, product: Product, stream: Stream) -> tuple[str, int, int]:
        """The element of a product's pages, and the bytes of a row and of a span of it."""
        storage = self.call.body.args[stream.arg].storage
        assert isinstance(product.k, Const)
        return STORAGE[storage], product.k.value * storage.size, product.span * storage.size

    def let(self, s: t.Let) -> None:
        if s.id not in self.hidden:
            super().let(s)

    def matmul(self, id: int, a: int, b: int, type: t.TileType) -> Value:
        if id not in self.products:
            return super().matmul(id, a, b, type)
        run = self.run_of(id)
        if run is not None and id != run.ids[0]:
            return self.values[id]
        product, stream = self.products[id]
        if run is not None and run.joined > 1:
            stream = run.of(stream)
            self.joined.add(run.args[0])
        if stream.is_b_streamed and stream.is_streamed and id not in self.begun:
            self._set_off(id, self.columns(product, stream))
        kind, row, span = self._sizes(product, stream)
        x = self.columns(product, stream) if run is None else self.stepped_columns(product, run)
        rows, n = self.extent(product.rows), self.extent(product.columns)
        self.open_beside(product, stream)
        if id in self.straight:
            result = self.targets[self.straight[id].arg].view
        else:
            result = self.own(f"v{id}", type) if run is None else self.begin_run(run, type)
        across, along = result.strides if product.left else reversed(result.strides)
        out = f"{result.data}, {across}, {along}"
        self.staging_room(product, stream, row, run)
        source = source_of(self.call, self.program, self.expr, stream, span, run)
        for arg in (stream.arg,) if run is None else run.args:
            self.out.comment(f"{self.args.name(arg)} = {self.call.regions[arg]}, by pages")
        if stream.is_b_streamed:
            known = product.rows.value // PANEL if isinstance(product.rows, Const) else 0
            mapped = ", true" if x.mapped else ""
            how = f"et::wide_gemm<{kind}, {row}, {span}, {known}, {self.pass_of(product)}{mapped}>"
        else:
            panels, times = -(-stream.rows // PANEL), ""
            if run is not None:
                count = len(run.ids)
                panels, times = panels * count, f", {count}"
                rows, n = f"{rows} * {count}", str(count)
            tiles = -(-stream.columns // 8)
            how = (
                f"et::skinny_gemm<{kind}, {tiles}, {row}, {stream.k_bytes_per_stage},"
                f" {panels}{times}>"
            )
        what = f"{x.matrix}, {rows}, {n}{x.begins}"
        if stream.is_b_streamed:
            self.block_out.ends_met(f"{how}(worker, {source}, {out}, {what});")
            self.block_out.together = True
        else:
            made = [f"v{id}"] if run is None else [f"v{k}" for k in run.ids]
            self.block_out.ends_folding(f"{how}(worker, {source}, {out}, {what});", made)
        return of_view(result, type)

    def run_of(self, id: int) -> Run | None:
        """The run of a product, if its columns lie evenly apart, as the pages are stored."""
        run = self.runs.get(id)
        if run is None:
            return None
        base, storage = self.values[run.base].view, self.call.body.args[run.args[0]].storage
        first = self.values[self.products[run.ids[0]][0].other].view
        if base is None or base.tables or first is None or first.buffer != base.buffer:
            return None
        even = base.storage is storage and all(s.isdecimal() for s in base.strides)
        return run if even else None

    def stepped_columns(self, product: Product, run: Run) -> Columns:
        """The other side of the first product, and how far the next one's lies from it."""
        first = self.matrix(product.other)
        along, step = first.strides[0 if product.left else 1], self.step_of(run)
        return Columns(f"et::Matrix<{STORAGE[first.storage]}>{{{first.data}, {along}, {step}}}")

    def step_of(self, run: Run) -> int:
        """Elements from the column of a product to that of the next."""
        base = self.values[run.base].view
        assert base is not None
        return int(base.strides[run.axis])

    def begin_run(self, run: Run, type: t.TileType) -> View:
        """A tile for what the products of a run give, one after the other; the first one's."""
        name, each = f"v{run.ids[0]}_run", self.extent(extents(type.shape))
        self.temp(name, replace(type, shape=(Const(len(run.ids)), *type.shape)))
        views = []
        for k, id in enumerate(run.ids):
            self.out.line(f"auto* const v{id} = {name} + {k} * {each};")
            self.temps.add(f"v{id}")
            self.local[-1].add(f"v{id}")
            views.append(View(f"v{id}", self.row_major(type), type.dtype, f"v{id}", (), True))
            self.values[id] = of_view(views[-1], type)
        return views[0]

    def pass_of(self, product: Product) -> str:
        """The columns of its widest pass: no wider one is compiled."""
        return next((name for name in _PASSES if self._within(product, name)), "et::N128")

    def _within(self, product: Product, columns: str) -> bool:
        """True if it never has more columns."""
        most = numeric_bounds(product.columns)[1]
        return most is not None and most <= _PASSES[columns]

    def open_beside(self, product: Product, stream: Stream) -> None:
        """Where activation tiles are, temporaries may be from the end of a lone product on."""
        most = opens_beside([s for _, s in self.products.values()], stream)
        if stream.is_b_streamed and stream.is_streamed and most is not None:
            self.out.line(
                f"if ({self.extent(product.columns)} <= {most}) "
                "worker.arena.open_beside(worker.pipeline.activation_bytes());"
            )
            if self._within(product, most):
                self.block_out.before = list(self.block_out.taken)

    def staging_room(
        self, product: Product, stream: Stream, row: int, run: Run | None
    ) -> None:
        """For columns that are staged as a whole and do not lie there already, and what the warps
        fold through. It goes back when the product is over."""
        if stream.is_b_streamed:
            return
        times = 1 if run is None else len(run.ids)
        panels = -(-stream.rows // PANEL) * times
        staged: Node = Const(0)
        if stream.columns > 1:
            staged = mul(product.columns, Const(row + _PITCH))
        elif not self._lies_near(product, run):
            staged = Const(row * times)
        part = PANEL * (8 * -(-stream.columns // 8) if run is None else 1)
        batch = min(-(-panels // stream.bundle), max(1, BATCH_SUMS // part))
        folded = WARPS * part * batch * 4
        self.lent = maximum(self.lent, add(staged, Const(folded + _ALIGN)))

    def _lies_near(self, product: Product, run: Run | None) -> bool:
        """True if a product takes its column where it is, as stage_columns says: in shared memory,
        element by element, from a multiple of 16 bytes on."""
        arg, x = argument_of(self.call.body, product.other), self.values[product.other].view
        if arg is None or arg not in self.args.staged or x is None:
            return False
        tile, along = self.reads[arg].view, x.strides[0 if product.left else 1]
        step = 0 if run is None else self.step_of(run)
        return tile is not None and x.data == tile.data and along == "1" \
            and step * x.storage.size % 16 == 0
