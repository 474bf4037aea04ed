"""Task bodies as text: one statement a line, `%3 = sum(%2, axis=1) : f32[32]`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from .expr import text
from .tensor import axis_text
from .tile import (
    Accumulate,
    Arg,
    ArgMax,
    Binary,
    Body,
    Broadcast,
    Cast,
    Concat,
    Cumsum,
    For,
    Gather,
    Histogram,
    Index,
    Iota,
    Let,
    Literal,
    MatMul,
    Op,
    Reduce,
    Reshape,
    SliceOf,
    Stmt,
    Store,
    SubAxis,
    TopK,
    Transpose,
    Unary,
    Update,
    Where,
)

INDENT = "  "


def body_lines(body: Body) -> Iterator[str]:
    """Arguments, then what the proof owes about extents, then statements."""
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
    match op:
        case Arg(arg):
            return f"arg({body.args[arg].name})"
        case Literal(value):
            return f"literal({value!r})"
        case Index(e):
            return f"index({text(e)})"
        case Unary(name, x):
            return f"{name}(%{x})"
        case Binary(name, a, b):
            return f"{name}(%{a}, %{b})"
        case Where(c, a, b):
            return f"where(%{c}, %{a}, %{b})"
        case Cast(x, dtype):
            return f"cast(%{x}, {dtype})"
        case SliceOf(x, axes):
            return f"slice(%{x}{_axes(axes)})"
        case Update(x, axes, value):
            return f"update(%{x}{_axes(axes)}, %{value})"
        case Concat(xs, axis):
            return f"concat({', '.join(f'%{x}' for x in xs)}, axis={axis})"
        case _:
            return _simple_text(op)


def _simple_text(
    op: Broadcast | Reduce | MatMul | Transpose | Reshape | Iota | Cumsum | Gather | ArgMax | TopK
    | Histogram,
) -> str:
    match op:
        case Broadcast(x):
            return f"broadcast(%{x})"
        case Reduce(name, x, axis):
            return f"{name}(%{x}, axis={axis})"
        case MatMul(a, b):
            return f"matmul(%{a}, %{b})"
        case Transpose(x, perm):
            return f"transpose(%{x}, perm={list(perm)})"
        case Reshape(x):
            return f"reshape(%{x})"
        case Iota():
            return "iota()"
        case Cumsum(x, axis):
            return f"cumsum(%{x}, axis={axis})"
        case Gather(x, index, axis):
            return f"gather(%{x}, %{index}, axis={axis})"
        case ArgMax(x):
            return f"argmax(%{x})"
        case TopK(x, k, indices):
            return f"{'topk_indices' if indices else 'topk_values'}(%{x}, k={k})"
        case Histogram(index, weights):
            return f"histogram({', '.join(f'%{x}' for x in (index, *weights))})"
        case _:
            assert_never(op)
