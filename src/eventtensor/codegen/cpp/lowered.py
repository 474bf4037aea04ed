"""Bodies in kernel IR, within a frame that is text: what the frame has brought for a body is told
to its lowering, and the printed body goes behind it."""

from __future__ import annotations

from collections.abc import Iterator

from ...ir import tile as t
from ...ir.expr import Const, Node, product
from ...ir.tensor import DType, Point, Rows
from ...kernel_ir import buffers as bf
from ...kernel_ir import statements as st
from ...kernel_ir.scopes import Scope, Space
from ...kernel_ir.traversal import all_stmts
from ...lower.lower_body import Prologue
from ...lower.operands import region_view
from ...render.dtypes import STORAGE
from .body import BodyWriter
from .value import Value


def prologue_of(writer: BodyWriter, first: int) -> Prologue:
    """Writes the rest of what comes before the body, and takes away the lines of the frame from
    number `first` on."""
    held, names = writer.hold_stages(), writer.names()
    views = {k: _given(writer, k, x) for k, x in (writer.args.brought | held).items()}
    waits = st.Waits(
        _taken(writer, first),
        Scope.thread,
        _ends(writer),
        tuple(st.LetIndex(f"${name}", e) for e, name in names.items()),
        (*views.values(), *_tables(writer)),
    )

    def enter(loop: t.For) -> st.Waits | None:
        begin = len(writer.out)
        writer.out.apart()
        writer.enter(loop)
        lines = _taken(writer, begin)
        return st.Waits(lines, Scope.thread, _ends(writer)) if lines else None

    return Prologue(waits, views, set(writer.regions.made), len(names), bool(held), enter)


def _tables(writer: BodyWriter) -> Iterator[bf.View]:
    """Of gathered rows, that the frame has made."""
    for k, region in enumerate(writer.call.regions):
        for axis, a in enumerate(region.axes):
            name = f"{writer.args.name(k)}_rows{axis}"
            if isinstance(a, Rows) and name in writer.regions.made:
                yield bf.tile(name, bf.Buffer(name, Space.arena, DType.i64, (a.extent,)))


def _ends(writer: BodyWriter) -> Scope:
    return Scope.role if writer.out.met() else Scope.thread


def _taken(writer: BodyWriter, first: int) -> tuple[str, ...]:
    """Lines without the indentation of a function."""
    return tuple(text.removeprefix("  ") for text in writer.out.cut(first))


def _given(writer: BodyWriter, k: int, x: Value) -> bf.View:
    """An argument that the frame has brought: a region where it lies, or a dense tile."""
    view, type, region = x.view, writer.args.type(k), writer.call.regions[k]
    assert view is not None
    if view.data.endswith(".data"):
        name = writer.args.name(k)
        tables = tuple(
            bf.Table(f"{name}_rows{axis}", Const(0)) if isinstance(a, Rows) else None
            for axis, a in enumerate(region.axes)
            if not isinstance(a, Point)
        )
        return region_view(
            name,
            region,
            writer.program.tensor(region.tensor),
            bf.Form.descriptor,
            type.shape,
            tables if any(tables) else (),
        )
    space = Space.arena if view.buffer in writer.temps else Space.shared
    return bf.tile(view.data, bf.Buffer(view.data, space, view.storage, type.shape))


def taken_by(f: st.Function) -> list[tuple[Node, str]]:
    """What a body takes of the arena."""
    views = [s.view for s in all_stmts(f.body) if isinstance(s, st.Allocate)]
    return [(product(x.extents), STORAGE[x.buffer.dtype]) for x in views]
