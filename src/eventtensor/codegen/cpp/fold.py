"""Ops along an axis: reductions, argmax, top-k, prefix sums, sorts, histograms.

A reduction is lazy where one thread folds an element. Where several do it together it is evaluated
at once: each result is a tile, or a constant that all threads know.
"""

from __future__ import annotations

from ...ir import tile as t
from ...ir.expr import Const, Node, product
from ...ir.handler_table import HandlerTable
from ...ir.walk import free_vars
from .args import Target, stored_once
from .frame import BodyFrame
from .value import Index, Value, ctype, elsewhere, long_axes, of_view, scalar

# Names in device/numerics.h and in device/cuda/ops/reduce.cuh.
_FOLDS: HandlerTable[str, tuple[str, str]] = HandlerTable(
    "folds (codegen/cpp/fold.py)", (*t.REDUCE, "argmax")
)
_FOLDS.add(("lane_sum", "half_sum"), "sum")
_FOLDS.add(("fold_max", "half_max"), "max")
_FOLDS.add(("fold_min", "half_min"), "min")
_FOLDS.add(("arg_max", "half_arg_max"), "argmax")
_FOLDS.require_all()

_SCANS: HandlerTable[str, tuple[str, str]] = HandlerTable(
    "prefix sums (codegen/cpp/fold.py)", t.SCAN
)
_SCANS.add(("+", "0"), "sum")
_SCANS.add(("*", "1"), "prod")
_SCANS.require_all()

# With few results most threads would wait for the memory that a few read: up to this many elements
# are brought into the arena by all of them first.
_FEW, _STAGED = 16, 8192


def is_few(results: Node) -> bool:
    return isinstance(results, Const) and results.value < _FEW


class FoldWriter(BodyFrame):
    def direct_stores(self) -> dict[int, Target]:
        """Where folds go that are only stored, and that several threads do together."""
        stmts = self.call.body.stmts
        folded = {s.id: s for s in stmts if isinstance(s, t.Let) and self._folds_together(s)}
        return {s.value: self.targets[s.arg] for s in stmts
                if isinstance(s, t.Store) and s.value in folded and self.is_straight(s)}

    def is_straight(self, s: t.Store) -> bool:
        """True if a value is stored whole, to a place where it stays and nothing else goes, so that
        it may come earlier or later, and used by nobody else."""
        target = self.targets[s.arg]
        plain = target.home is None and not target.words and not target.view.tables
        alone = stored_once(self.call.body, s.arg) and not self.args.overwritten(s.arg)
        return plain and alone and self.uses.count[s.value] == 1 and s.value not in self.uses.named

    def _folds_together(self, s: t.Let) -> bool:
        """Of what another statement found: a tile that a loop leaves behind is folded as it is."""
        if not isinstance(s.op, t.Reduce | t.ArgMax) or not s.type.shape:
            return False
        axis = s.op.axis if isinstance(s.op, t.Reduce) else len(s.type.shape)
        shapes = [x.type.shape for x in t.all_stmts(self.call.body.stmts)
                  if isinstance(x, t.Let) and x.id == s.op.x]
        return any(self.out.folds_together(shape, axis) for shape in shapes)

    def fold(self, id: int, name: str, x: Value, axis: int, type: t.TileType) -> Value:
        alone, together = _FOLDS[name]
        self.extent(x.type.shape[axis])  # declared here, not in a loop
        if name == "argmax":
            self.has_elements(x.type.shape[axis], 1)
        if not self.out.folds_together(x.type.shape, axis):
            at = lambda index: self.folding(id, alone, x, axis, type, index)
            return Value(type, at, elsewhere(x.leaves), None, cheap=False)
        x = self.staged(id, x, type)
        kind = ctype(type.dtype)
        if not long_axes(type) and id not in self.direct:
            found = self.folding(id, together, x, axis, type, ("0",) * len(type.shape))
            self.out.line(f"const {kind} v{id} = et::from_first({found});")
            return scalar(f"v{id}", type)
        result = self.direct[id].view if id in self.direct else self.own(f"v{id}", type)
        index, kept, sizes = self.indices(type.shape)
        with self.out.folds([index[k] for k in kept], sizes) as leads:
            found = self.folding(id, together, x, axis, type, index)
            self.out.line(f"const {kind} v{id}_found = {found};")
            self.out.line(f"if ({leads}) {result.place(index)} = "
                          f"{self.rounded(f'v{id}_found', type.dtype, result)};")
        return of_view(result, type)

    def has_elements(self, extent: Node, least: int) -> None:
        """In debug, that an axis has so many elements, where a value of the body decides it."""
        if self.expr.debug and any(v.startswith("%") for v in free_vars(extent)):
            self.out.line(f"et::index_checked(worker, {least - 1}, {self.extent(extent)});")

    def folding(
        self, id: int, name: str, x: Value, axis: int, type: t.TileType, index: Index
    ) -> str:
        """The fold of x along an axis, at an index of the result."""
        n, k = self.extent(x.type.shape[axis]), f"k{id}"
        kind = ctype(x.type.dtype if name.endswith("arg_max") else type.dtype)
        inner = x.at((*index[:axis], k, *index[axis:]))
        return f"et::{name}<{kind}>({n}, [&](int64_t {k}) {{ return {inner}; }})"

    def staged(self, id: int, x: Value, type: t.TileType) -> Value:
        """x in the arena, if few results are made of many elements that lie elsewhere."""
        size, results = product(x.type.shape), product(type.shape)
        near = bool(x.leaves) and all(buffer in self.temps for buffer in x.leaves)
        if near or not isinstance(size, Const) or not is_few(results):
            return x
        if not _FEW * 4 <= size.value <= _STAGED:
            return x
        return of_view(self.held(f"v{id}_all", x), x.type)

    def topk(self, id: int, x: Value, k: int, indices: bool, type: t.TileType) -> Value:
        n, kind = self.extent(x.type.shape[-1]), ctype(x.type.dtype)
        self.has_elements(x.type.shape[-1], k)
        result, whole = self.own(f"v{id}", type), isinstance(x.type.shape[-1], Const)
        self.out.line(f"int32_t v{id}_order[{k}]{'' if whole else ' = {}'};")
        with self.loops(type.shape[:-1], independent=False) as index:
            each, slot = f"i{len(index)}", f"i{len(index) + 1}"
            inner = f"[&](int64_t {each}) {{ return {x.at((*index, each))}; }}"
            found = f"v{id}_order[{slot}]"
            with self.out.block(""):
                self.out.line(f"et::top_k<{kind}>({n}, {k}, v{id}_order, {inner});")
                self.out.line(f"for (int64_t {slot} = 0; {slot} < {k}; ++{slot})")
                value = found if indices else x.at((*index, found))
                self.out.line(f"  {result.place((*index, slot))} = {value};")
        return of_view(result, type)

    def scan(self, id: int, name: str, x: Value, axis: int, type: t.TileType) -> Value:
        n, result = self.extent(type.shape[axis]), self.own(f"v{id}", type)
        others = type.shape[:axis] + type.shape[axis + 1 :]
        sign, first = _SCANS[name]
        with self.loops(others, independent=False) as index, self.out.block(""):
            k = f"i{len(index)}"
            full = (*index[:axis], k, *index[axis:])
            self.out.line(f"{ctype(type.dtype)} {name} = {first};")
            self.out.line(f"{self.out.rolled}for (int64_t {k} = 0; {k} < {n}; ++{k})")
            self.out.line(f"  {result.place(full)} = {name} = {name} {sign} {x.at(full)};")
        return of_view(result, type)

    def sort(self, id: int, x: Value, axis: int, indices: bool, type: t.TileType) -> Value:
        """Each element goes to its place, the number of those that come before it."""
        n, kind = self.extent(type.shape[axis]), ctype(x.type.dtype)
        result = self.own(f"v{id}", type)
        with self.loops(type.shape, independent=False) as index, self.out.block(""):
            own = index[axis]
            before, behind = index[:axis], index[axis + 1 :]
            looks = f"[&](int64_t k{id}) {{ return {x.at((*before, f'k{id}', *behind))}; }}"
            self.out.line(f"const int64_t p{id} = et::rank_of<{kind}>({n}, {own}, {looks});")
            place = result.place((*before, f"p{id}", *behind))
            found = f"int32_t({own})" if indices else x.at(index)
            self.out.line(f"{place} = {found};")
        return of_view(result, type)

    def histogram(self, id: int, index: Value, weights: list[Value], type: t.TileType) -> Value:
        n, bins, k = self.extent(index.type.shape[0]), self.extent(type.shape[1]), f"k{id}"
        result = self.own(f"v{id}", type)
        looks = [f"[&](int64_t {k}) {{ return {x.at((k,))}; }}" for x in (index, *weights)]
        self.out.barrier()
        self.out.line(f"et::histogram(v{id}, {bins}, {n}, {', '.join(looks)});")
        self.out.barrier()
        return of_view(result, type)
