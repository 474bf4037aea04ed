"""Prints task bodies, one statement a line: `%3 = sum(%2, axis=1) : f32[32]`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, assert_never

from .expr import text
from .ops import OP_SPECS, Form
from .tensor import axis_text
from .tile import Accumulate, Body, For, Let, Op, Stmt, Store, SubAxis

INDENT = "  "


def body_lines(body: Body) -> Iterator[str]:
    """Arguments, then pairs of extents that the proof must show equal, then statements."""
    for a in body.args:
        yield f"arg {a.name}: {a.mode} {a.type} from {a.storage}"
    for x, y in body.equal_extents:
        yield f"equal {text(x)}; {text(y)}"
    yield from _stmt_lines(body.stmts, body)


def _stmt_lines(stmts: tuple[Stmt, ...], body: Body) -> Iterator[str]:
    for s in stmts:
        match s:
            case Let(i, op, t):
                yield f"%{i} = {op_text(op, body)} : {t}"
            case Store(arg, axes, value):
                yield f"store {body.args[arg].name}{_axes(axes)} = %{value}"
            case Accumulate(arg, value):
                yield f"accumulate {body.args[arg].name} += %{value}"
            case For(var, extent, carries, inner):
                yield f"for %{var} < {text(extent)}"
                for c in carries:
                    yield (
                        f"{INDENT}carry %{c.phi} = %{c.init}; next %{c.next}; out %{c.out}"
                        f" : {c.type}"
                    )
                yield from (INDENT + line for line in _stmt_lines(inner, body))
            case _:
                assert_never(s)


def _axes(axes: tuple[SubAxis, ...]) -> str:
    return f"[{', '.join(axis_text(a) for a in axes)}]"


def op_text(op: Op, body: Body) -> str:
    """As the row of the op says."""
    row, shown = OP_SPECS[type(op)], list[str]()
    for name, form in row.fields:
        value = getattr(op, name)
        match form:
            case Form.axes:
                shown[-1] += _axes(value)
            case Form.values:
                shown += [f"%{x}" for x in value]
            case _:
                shown.append(_field_text(name, form, value, body))
    return f"{row.name(op)}({', '.join(shown)})"


def _field_text(name: str, form: Form, value: Any, body: Body) -> str:
    match form:
        case Form.value:
            return f"%{value}"
        case Form.arg:
            return str(body.args[value].name)
        case Form.expr:
            return text(value)
        case Form.number:
            return repr(value)
        case Form.integer:
            return f"{name}={value}"
        case Form.integers:
            return f"{name}={list(value)}"
        case _:
            return str(value)
