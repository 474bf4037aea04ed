"""Walks over index expressions: finds, replaces and evaluates.

ir/expr_functions.py evaluates one expression for many tasks faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import assert_never

from .expr import (
    Compare,
    Const,
    Dim,
    ExprLike,
    FloorDiv,
    Load,
    Max,
    Min,
    Mod,
    Node,
    Prod,
    Select,
    Sum,
    Var,
    add,
    compare,
    floordiv,
    maximum,
    minimum,
    mod,
    mul,
    product,
    select,
    wrap,
)


def children(e: Node) -> tuple[Node, ...]:
    match e:
        case Const() | Dim() | Var():
            return ()
        case Sum(terms, _):
            return tuple(t for t, _ in terms)
        case Prod(factors):
            return factors
        case FloorDiv(a, _) | Mod(a, _):
            return (a,)
        case Min(a, b) | Max(a, b) | Compare(_, a, b):
            return (a, b)
        case Load(_, index):
            return index
        case Select(c, a, b):
            return (c, a, b)
        case _:
            assert_never(e)


def walk(e: Node) -> Iterator[Node]:
    """All nodes, children before parents."""
    for child in children(e):
        yield from walk(child)
    yield e


def free_vars(*exprs: Node) -> set[str]:
    return {n.name for e in exprs for n in walk(e) if isinstance(n, Var)}


def dims_of(*exprs: Node) -> set[Dim]:
    return {n for e in exprs for n in walk(e) if isinstance(n, Dim)}


def loads_of(*exprs: Node) -> tuple[Load, ...]:
    """Distinct run-time loads, inner ones first."""
    return tuple(dict.fromkeys(n for e in exprs for n in walk(e) if isinstance(n, Load)))


def rebuild(e: Node, leaf: Callable[[Node], Node | None]) -> Node:
    """Replace nodes top-down where `leaf` answers, and renormalise."""
    found = leaf(e)
    if found is not None:
        return found
    match e:
        case Const() | Dim() | Var():
            return e
        case Sum(terms, const):
            out: Node = Const(const)
            for t, c in terms:
                out = add(out, mul(Const(c), rebuild(t, leaf)))
            return out
        case Prod(factors):
            return product([rebuild(f, leaf) for f in factors])
        case FloorDiv(a, k):
            return floordiv(rebuild(a, leaf), k)
        case Mod(a, k):
            return mod(rebuild(a, leaf), k)
        case Min(a, b):
            return minimum(rebuild(a, leaf), rebuild(b, leaf))
        case Max(a, b):
            return maximum(rebuild(a, leaf), rebuild(b, leaf))
        case Load(t, index):
            return Load(t, tuple(rebuild(i, leaf) for i in index))
        case Compare(op, a, b):
            return compare(op, rebuild(a, leaf), rebuild(b, leaf))
        case Select(c, a, b):
            return select(rebuild(c, leaf), rebuild(a, leaf), rebuild(b, leaf))
        case _:
            assert_never(e)


def substitute(e: Node, values: Mapping[str, ExprLike]) -> Node:
    """Replace variables (not dims) by name."""

    def leaf(n: Node) -> Node | None:
        return wrap(values[n.name]) if isinstance(n, Var) and n.name in values else None

    return rebuild(e, leaf)


LoadFn = Callable[[str, tuple[int, ...]], int]


def evaluate(e: Node, env: Mapping[str, int], load: LoadFn | None = None) -> int:
    """The value under `env`, which binds dims and variables by name."""
    match e:
        case Const(v):
            return v
        case Dim(name, _, _) | Var(name):
            return env[name]
        case Sum(terms, const):
            return const + sum(c * evaluate(t, env, load) for t, c in terms)
        case Prod(factors):
            return prod(evaluate(f, env, load) for f in factors)
        case FloorDiv(a, k):
            return evaluate(a, env, load) // k
        case Mod(a, k):
            return evaluate(a, env, load) % k
        case Min(a, b):
            return min(evaluate(a, env, load), evaluate(b, env, load))
        case Max(a, b):
            return max(evaluate(a, env, load), evaluate(b, env, load))
        case Load(t, index):
            assert load is not None, f"no run-time data for {e}"
            return load(t, tuple(evaluate(i, env, load) for i in index))
        case Compare(op, a, b):
            x, y = evaluate(a, env, load), evaluate(b, env, load)
            return int(x <= y if op == "<=" else x == y)
        case Select(c, a, b):
            return evaluate(a if evaluate(c, env, load) else b, env, load)
        case _:
            assert_never(e)
