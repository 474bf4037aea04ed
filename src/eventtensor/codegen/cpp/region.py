"""Regions of tensors as views: pointers, extents, strides, row tables, padded copies, checks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import assert_never

from ...ir.expr import Const, Node, add, compare, minimum
from ...ir.interval import numeric_bounds
from ...ir.program import Program
from ...ir.tensor import (
    Axis,
    Point,
    Region,
    Rows,
    Slice,
    Tensor,
    axis_exprs,
    extent,
    tile_shape,
)
from ...ir.walk import loads_of
from ...render.index_text import ExprWriter, paren
from ..emitter import cpp_name
from .dialect import Dialect, loop
from .value import STORAGE, View, literal


@dataclass(frozen=True)
class RegionWriter:
    out: Dialect
    expr: ExprWriter
    program: Program
    extent: Callable[[Node], str]

    def view(
        self, name: str, region: Region, const: bool, element: str | None = None
    ) -> View:
        """Declare `name` as a view of the region (not padded) and its row tables. `element` is what
        lies in memory, if that is not the tensor's dtype."""
        tensor = self.program.tensor(region.tensor)
        shape = [self.extent(e) for e in tile_shape(region, tensor)]
        start = [f"args.{cpp_name(tensor.name)}"]
        strides: list[str] = []
        tables: list[str | None] = []
        for k, axis in enumerate(region.axes):
            stride = self.expr.stride(tensor.shape, k)
            if isinstance(axis, Rows):
                tables.append(self._table(f"{name}_rows{k}", axis, stride))
                strides.append("0")
                continue
            first = axis_exprs(axis)[0]
            if first != Const(0):
                text = paren(self.expr(first))
                start.append(text if stride == "1" else f"{text} * {paren(stride)}")
            if isinstance(axis, Slice):
                tables.append(None)
                strides.append(stride)
        kind = ("const " if const else "") + (element or STORAGE[tensor.dtype])
        data = self.out.in_tensor(name, " + ".join(start))
        self.out.line(
            f"const et::View<{kind}, {len(shape)}> {name}{{{data}, "
            f"{{{', '.join(shape)}}}, {{{', '.join(strides)}}}}};"
        )
        known = tuple(
            s if s.isdigit() else f"{name}.stride[{k}]" for k, s in enumerate(strides)
        )
        has_rows = any(t is not None for t in tables)
        return View(
            f"{name}.data", known, tensor.dtype, name, tuple(tables) if has_rows else ()
        )

    def _table(self, name: str, axis: Rows, stride: str) -> str:
        """Offsets of gathered rows, in elements."""
        self._tables({name: stride}, axis)
        return name

    def _tables(self, strides: dict[str, str], axis: Rows) -> None:
        """The same for tensors whose rows lie so far apart, by the names of the tables."""
        n, var = self.extent(axis.extent), cpp_name(axis.var)
        for name in strides:
            self.out.take(name, "int64_t", n, axis.extent)
        at, rows = paren(self.expr(axis.index)), self.out.shared_loop(var, n)

        def entry(name: str, row: str) -> str:
            stride = strides[name]
            return f"{name}[{var}] = {row if stride == '1' else f'{row} * {paren(stride)}'};"

        if len(strides) == 1:
            (only,) = strides
            self.out.line(f"{rows} {entry(only, at)}")
        else:
            with self.out.block(rows):
                self.out.line(f"const int64_t at = {at};")
                for name in strides:
                    self.out.line(entry(name, "at"))
        self.out.barrier()

    def padded(self, name: str, region: Region, dense: View) -> None:
        """Fill `dense` with the region's elements, and its value where it overhangs."""
        assert region.pad is not None
        tensor = self.program.tensor(region.tensor)
        tile_index: list[str] = []
        where: list[str] = []
        depth = 0
        tiled = [k for k, axis in enumerate(region.axes) if not isinstance(axis, Point)]
        for k, axis in enumerate(region.axes):
            if not isinstance(axis, Point):
                var = cpp_name(axis.var) if isinstance(axis, Rows) else f"i{depth}"
                size = extent(axis, tensor.shape[k], region.pads_axis(k))
                assert size is not None
                n = self.expr(size)
                shared = self.out.shared_loop(var, n) if k == tiled[-1] else loop(var, n)
                self.out.line(f"{shared} {{")
                self.out.deeper()
                tile_index.append(var)
                depth += 1
            self.out.line(f"const int64_t {name}_at{k} = {self._axis_at(axis, tile_index)};")
            where.append(f"{name}_at{k}")
        sizes = [self.expr(s) for s in tensor.shape]
        inside = " && ".join(
            f"{w} >= 0 && {w} < {paren(s)}" for w, s in zip(where, sizes, strict=True)
        )
        source = View(
            f"args.{cpp_name(tensor.name)}",
            tuple(paren(self.expr.stride(tensor.shape, k)) for k in range(len(where))),
            tensor.dtype,
            name,
        )
        value = literal(region.pad.value, dense.storage.tile_dtype)
        found = f"{inside} ? {source.at(tuple(where))} : {value}"
        if dense.storage is not dense.storage.tile_dtype:
            found = f"et::cast<{STORAGE[dense.storage]}>({found})"
        with nullcontext() if tiled else self.out.leading():
            self.out.line(f"{dense.place(tuple(tile_index))} = {found};")
        for _ in range(depth):
            self.out.shallower()
            self.out.line("}")
        self.out.barrier()

    def _axis_at(self, axis: Axis, tile_index: list[str]) -> str:
        match axis:
            case Point(index):
                return self.expr(index)
            case Slice(start, _):
                return f"{self.expr(start)} + {tile_index[-1]}"
            case Rows(_, _, index):
                return self.expr(index)
            case _:
                assert_never(axis)

    # ---- debug -----------------------------------------------------------------------------

    def checks(self, region: Region) -> None:
        """Every index that the region touches lies inside its tensor (and its padding)."""
        tensor = self.program.tensor(region.tensor)
        for k, axis in enumerate(region.axes):
            lo, hi = (0, 0) if region.pad is None else (region.pad.lo[k], region.pad.hi[k])
            size = add(tensor.shape[k], Const(lo + hi))
            match axis:
                case Point(index):
                    self._check(tensor, k, add(index, Const(lo)), size)
                case Slice(start, _):
                    self._check_slice(tensor, k, add(start, Const(lo)), axis, size)
                case Rows(var, n, index):
                    v = cpp_name(var)
                    with self.out.block(loop(v, self.expr(n))):
                        self._check(tensor, k, add(index, Const(lo)), size)
                case _:
                    assert_never(axis)

    def _check_slice(
        self, tensor: Tensor, k: int, first: Node, axis: Slice, size: Node
    ) -> None:
        """An empty slice touches nothing; a run-time one may lie wholly beyond the end."""
        touched = compare("<=", 1, axis.nominal)
        if loads_of(axis.start, axis.stop):
            touched = minimum(touched, compare("<=", first, -1))
        if touched == Const(1):
            self._check(tensor, k, first, size)
        elif touched != Const(0):
            with self.out.block(f"if ({self.expr.condition(touched)})"):
                self._check(tensor, k, first, size)

    def _check(self, tensor: Tensor, axis: int, index: Node, size: Node) -> None:
        if isinstance(index, Const) and index.value >= 0:
            low = numeric_bounds(size)[0]
            if low is not None and index.value < low:
                return
        at = self.expr(index)
        self.out.line(
            f"if (!et::range_check(worker, TENSOR_{tensor.name}, {axis}, {at}, {at}, "
            f"{self.expr(size)})) return false;"
        )
