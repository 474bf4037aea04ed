"""The other side of a product that uses up pages: as a matrix in memory, in the storage of the
streamed one, without a copy where that is possible.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from ...ir import tile as t
from ...ir.expr import Const, Node
from ...ir.plan import Stream
from ...ir.products import Product, argument_of, merged_axes
from ...ir.program import PlacedCall, Program
from ...render.index_text import ExprWriter
from ..cpp.body import BodyWriter
from ..cpp.value import STORAGE, Value, View, of_view
from ..emitter import cpp_name
from .emitter import BlockDialect
from .maps import ROW_ALIGN, Maps


@dataclass(frozen=True)
class Columns:
    """The other side of a product as (k, n), and as further arguments: in which map it is, or where
    gathered columns begin."""

    matrix: str
    mapped: str = ""
    begins: str = ""


class ColumnsBody(BodyWriter):
    def __init__(
        self, out: BlockDialect, expr: ExprWriter, program: Program, placed: PlacedCall, maps: Maps
    ) -> None:
        super().__init__(out, expr, program, placed)
        self.maps = maps

    def reshape(self, id: int, x: Value, type: t.TileType) -> Value:
        """No copy where axes of extent 1 come and go, or neighbours that lie side by side join."""
        joined = self._joined(x, type)
        if joined is None or x.view is None:
            return super().reshape(id, x, type)
        strides = iter([x.view.strides[g[-1]] for g in joined])
        moved = tuple("0" if n == Const(1) else next(strides) for n in type.shape)
        return of_view(replace(x.view, strides=moved, dense=False), type)

    def _joined(self, x: Value, type: t.TileType) -> tuple[tuple[int, ...], ...] | None:
        """For each axis of the shape (but those of extent 1) the axes of x that become it."""
        view = x.view
        if view is None or view.tables:
            return None
        kept = [k for k, n in enumerate(x.type.shape) if n != Const(1)]
        old = tuple(x.type.shape[k] for k in kept)
        new = tuple(n for n in type.shape if n != Const(1))
        joined = merged_axes(tuple((k,) for k in kept), old, new)
        if joined is None or not all(_side_by_side(view, x.type.shape, g) for g in joined):
            return None
        return joined

    def columns(self, product: Product, stream: Stream) -> Columns:
        """The other side, in the storage of the streamed one."""
        storage = self.call.body.args[stream.arg].storage
        value = self.values[product.other]
        if stream.is_b_streamed and value.view is not None and value.view.storage is storage:
            k, n = (0, 1) if product.left else (1, 0)
            table, view = value.view.table(n), value.view
            if table is not None and view.table(k) is None:
                x = f"et::Matrix<{STORAGE[storage]}>{{{view.data}, {view.strides[k]}, 0}}"
                return Columns(x, begins=f", {table}")
        view = self.matrix(product.other)
        if view.storage is not storage:
            made = self.temp(f"v{product.other}_narrow", value.type, STORAGE[storage])
            narrow = replace(made, storage=storage)
            self.fill(narrow, of_view(view, value.type))
            view = narrow
        along, across = view.strides if product.left else reversed(view.strides)
        matrix = f"et::Matrix<{STORAGE[storage]}>{{{view.data}, {along}, {across}}}"
        by_lines = (
            stream.is_b_streamed and stream.is_streamed and along == "1" and across.isdecimal()
        )
        return Columns(matrix, self.mapped(product, view, int(across)) if by_lines else "")

    def mapped(self, product: Product, view: View, width: int) -> str:
        """Where columns lie that many elements apart in the matrix that their tensor is, if copies
        can take boxes of it where it is."""
        arg = argument_of(self.call.body, product.other)
        if arg is None or view.data != f"{self.args.name(arg)}.data":
            return ""  # a copy, or a part of one
        tensor, storage = self.call.regions[arg].tensor, view.storage
        if width < 1 or width * storage.size % ROW_ALIGN:
            return ""
        number = self.maps.number(tensor, width)
        if number is None:
            return ""
        kind = f"et::Mapped<{STORAGE[storage]}, {width}>"
        return f", {kind}{{{number}, args.{cpp_name(tensor)}}}"


def _side_by_side(view: View, shape: tuple[Node, ...], axes: tuple[int, ...]) -> bool:
    """True if one axis can take the place of these."""
    for outer, inner in pairwise(axes):
        size, strides = shape[inner], (view.strides[outer], view.strides[inner])
        if not isinstance(size, Const) or not all(s.isdecimal() for s in strides) \
                or int(strides[0]) != int(strides[1]) * size.value:
            return False
    return bool(axes)
