"""Prints kernel IR: one line a statement, with views and names as they are bound."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from ..ir.expr import Node
from ..ir.expr import text as expr_text
from . import scalar_values as v
from . import statements as st
from .buffers import Part, View


def function_text(f: st.Function) -> str:
    coords = ", ".join(f.call.vars)
    lines = [f"body {f.name}({coords}) on {f.threads} thread{'s' if f.threads > 1 else ''}"]
    lines += (f"  {line}" for line in block_lines(f.body))
    return "\n".join(lines) + "\n"


def block_lines(block: st.Block) -> Iterator[str]:
    for s in block:
        yield from stmt_lines(s)


def stmt_lines(s: st.Stmt) -> Iterator[str]:
    match s:
        case st.Elements() | st.For() | st.If() | st.Elect():
            yield _head(s)
            yield from (f"  {line}" for line in block_lines(s.body))
        case st.Waits(lines, first, last, names, views):
            yield f"waits, converged {first.name} .. {last.name}"
            yield from (f"  | {line.strip()}" for line in lines)
            yield from (f"  {_line(x)}" for x in names)
            yield from (f"  view {_view(x)}" for x in views)
        case _:
            yield _line(s)


def _head(s: st.Elements | st.For | st.If | st.Elect) -> str:
    match s:
        case st.Elements(axes, distribution, _, serial, first):
            each = [
                f"{_name(a.var)} < {_expr(a.extent)}{' in order' if k in serial else ''}"
                for k, a in enumerate(axes)
            ]
            ahead = [f", first {_name(x.name)} = {value_text(x.value)}" for x in first]
            return f"elements ({', '.join(each)}) {distribution}{''.join(ahead)}"
        case st.For(var, extent, _):
            return f"for {_name(var)} < {_expr(extent)}"
        case st.If(condition, _):
            return f"if {value_text(condition)}"
        case st.Elect(scope, _):
            return f"elect {scope.name}"
        case _:
            assert_never(s)


def _line(s: st.Stmt) -> str:
    match s:
        case st.LetIndex(name, expr):
            return f"let {_name(name)} = {_expr(expr)}"
        case st.Let(name, value, changes):
            return f"{'var' if changes else 'let'} {_name(name)} = {value_text(value)}"
        case st.Assign(name, value):
            return f"{_name(name)} = {value_text(value)}"
        case st.Allocate(view):
            return f"allocate {_view(view)}"
        case st.Bind(view, _):
            return f"view {_view(view)} of {view.region}"
        case st.Point(view) if isinstance(view.origin, Part):
            starts = ", ".join(
                f"clamp({_expr(x)})" if k in view.origin.clamped else _expr(x)
                for k, x in enumerate(view.origin.starts)
            )
            return f"view {_view(view)} of {view.origin.base.name} from [{starts}]"
        case st.Check(index, extent):
            return f"check {_expr(index)} < {_expr(extent)}"
        case st.Store(view, index, value):
            return f"{_place(view, index)} = {value_text(value)}"
        case st.Accumulate(view, index, value, atomic):
            return f"{_place(view, index)} += {value_text(value)}{' atomic' if atomic else ''}"
        case st.Histogram(view, var, extent, index, weights):
            sums = ", ".join(map(value_text, weights))
            each = f"{_name(var)} < {_expr(extent)}: {value_text(index)}"
            return f"{view.name} = histogram({each}; {sums})"
        case st.Barrier(scope, id):
            return f"barrier {scope.name}{f' {id}' if id else ''}"
        case st.ReleaseStages():
            return "release stages"
        case _:
            raise AssertionError(f"{s} has lines of its own")


def value_text(x: v.Scalar) -> str:
    match x:
        case v.Literal(value, dtype):
            return f"{value!r}:{dtype}"
        case v.Name(name, _):
            return _name(name)
        case v.Number(expr, dtype):
            return f"{dtype}({_expr(expr)})"
        case v.Unary(op, a):
            return f"{op}({value_text(a)})"
        case v.Binary(op, a, b):
            return f"{op}({value_text(a)}, {value_text(b)})"
        case v.Choose(c, a, b):
            return f"choose({value_text(c)}, {value_text(a)}, {value_text(b)})"
        case v.Cast(a, dtype):
            return f"cast<{dtype}>({value_text(a)})"
        case v.Widen(a):
            return f"widen({value_text(a)})"
        case v.Element(view, index):
            return _place(view, index)
        case v.Pick(var, value, extent, _, inner):
            clamp = f"clamp({value_text(value)}, {_expr(extent)})"
            return f"{value_text(inner)} with {_name(var)} = {clamp}"
        case v.Fold(op, shared, var, extent, value):
            return f"{op}<{shared.name}>({_name(var)} < {_expr(extent)}: {value_text(value)})"
        case v.Broadcast(scope, a):
            return f"broadcast<{scope.name}>({value_text(a)})"
        case _:
            assert_never(x)


def _name(name: str) -> str:
    return name.removeprefix("$")


def _expr(e: Node) -> str:
    return expr_text(e).replace("$", "")


def _place(view: View, index: v.Index) -> str:
    strides = [f"*{_expr(s)}" for s in view.strides] if view.origin is not None else []
    layout = f"<{', '.join(strides)}>" if strides else ""
    return f"{view.name}{layout}[{', '.join(_expr(i) for i in index)}]"


def _view(view: View) -> str:
    extents = ", ".join(_expr(e) for e in view.extents)
    rows = "".join(f", axis {k} by {x.name}" for k, x in enumerate(view.tables) if x is not None)
    return f"{view.name}: {view.buffer.dtype}[{extents}] in {view.buffer.space.value}{rows}"
