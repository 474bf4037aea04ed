"""Walks over values and statements: what stands directly in a node, and what stands below it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import assert_never

from ..ir.expr import Node
from ..ir.tensor import region_exprs
from . import scalar_values as v
from . import statements as st


def operands(x: v.Scalar) -> tuple[v.Scalar, ...]:
    match x:
        case v.Literal() | v.Name() | v.Number() | v.Element():
            return ()
        case v.Unary(_, a) | v.Cast(a, _) | v.Widen(a) | v.Broadcast(_, a):
            return (a,)
        case v.Binary(_, a, b):
            return (a, b)
        case v.Choose(c, a, b):
            return (c, a, b)
        case v.Pick(value=value, inner=inner):
            return (value, inner)
        case v.Fold(value=value):
            return (value,)
        case _:
            assert_never(x)


def exprs_of(x: v.Scalar) -> tuple[Node, ...]:
    """Index expressions that stand directly in a value."""
    match x:
        case v.Number(expr, _):
            return (expr,)
        case v.Element(_, index):
            return index
        case v.Pick(extent=extent) | v.Fold(extent=extent):
            return (extent,)
        case _:
            return ()


def walk(x: v.Scalar) -> Iterator[v.Scalar]:
    """All values in one, itself last."""
    for y in operands(x):
        yield from walk(y)
    yield x


def body_of(s: st.Stmt) -> st.Block:
    match s:
        case st.Elements() | st.For() | st.If() | st.Elect():
            return s.body
        case _:
            return ()


def values_of(s: st.Stmt) -> tuple[v.Scalar, ...]:
    """Values that stand directly in a statement."""
    match s:
        case st.Let() | st.Assign() | st.Store() | st.Accumulate():
            return (s.value,)
        case st.If():
            return (s.condition,)
        case st.Histogram():
            return (s.index, *s.weights)
        case st.Elements():
            return tuple(let.value for let in s.first)
        case _:
            return ()


def stmt_exprs(s: st.Stmt) -> tuple[Node, ...]:
    """Index expressions that stand directly in a statement."""
    match s:
        case st.LetIndex(_, expr) | st.For(_, expr, _) | st.Histogram(extent=expr):
            return (expr,)
        case st.Check(index, extent):
            return (index, extent)
        case st.Bind(view, _) if view.region is not None:
            return region_exprs(view.region)
        case st.Waits(names=names):
            return tuple(x.expr for x in names)
        case st.Elements(axes):
            return tuple(a.extent for a in axes)
        case st.Store(_, index, _) | st.Accumulate(_, index, _, _):
            return index
        case _:
            return ()


def all_stmts(block: st.Block) -> Iterator[st.Stmt]:
    for s in block:
        yield s
        yield from all_stmts(body_of(s))


def with_bodies(block: st.Block, change: Callable[[st.Block], st.Block]) -> Iterator[st.Stmt]:
    """The statements of a block, with the blocks inside them changed."""
    for s in block:
        match s:
            case st.Elements() | st.For() | st.If() | st.Elect():
                yield replace(s, body=change(s.body))
            case _:
                yield s
