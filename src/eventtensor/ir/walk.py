"""Walks over index expressions: find, replace, evaluate, bound."""

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


Bounds = tuple[int | None, int | None]
BoundsFn = Callable[[Node], Bounds]


def bounds(e: Node, of: BoundsFn) -> Bounds:
    """An interval that holds the value; `of` bounds variables and loads (None: no bound)."""
    match e:
        case Const(v):
            return v, v
        case Dim(_, lo, hi):
            return lo, hi
        case Var() | Load():
            return of(e)
        case Sum(terms, const):
            return _sum_bounds(terms, const, of)
        case Prod(factors):
            parts = [bounds(f, of) for f in factors]
            if any(p[0] is None or p[0] < 0 for p in parts):
                return None, None
            his = [p[1] for p in parts]
            smallest = prod(p[0] for p in parts if p[0] is not None)
            return smallest, None if None in his else prod(h for h in his if h is not None)
        case FloorDiv(a, k):
            low, high = bounds(a, of)
            return None if low is None else low // k, None if high is None else high // k
        case Mod(_, k):
            return 0, k - 1
        case Min(a, b):
            (la, ha), (lb, hb) = bounds(a, of), bounds(b, of)
            return _both(min, la, lb), _either(min, ha, hb)
        case Max(a, b):
            (la, ha), (lb, hb) = bounds(a, of), bounds(b, of)
            return _either(max, la, lb), _both(max, ha, hb)
        case Compare():
            return 0, 1
        case Select(_, a, b):
            (la, ha), (lb, hb) = bounds(a, of), bounds(b, of)
            return _both(min, la, lb), _both(max, ha, hb)
        case _:
            assert_never(e)


def _both(pick: Callable[[int, int], int], a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else pick(a, b)


def _either(pick: Callable[[int, int], int], a: int | None, b: int | None) -> int | None:
    if a is None:
        return b
    return a if b is None else pick(a, b)


def _sum_bounds(terms: tuple[tuple[Node, int], ...], const: int, of: BoundsFn) -> Bounds:
    lo: int | None = const
    hi: int | None = const
    for t, c in terms:
        a, b = bounds(t, of)
        if c < 0:
            a, b = b, a
        lo = None if lo is None or a is None else lo + c * a
        hi = None if hi is None or b is None else hi + c * b
    return lo, hi


def at_least_zero(e: Node) -> Node:
    """The extent, or 0 where the ranges of the dims let it be negative."""
    low, _ = bounds(e, lambda _: (None, None))
    return e if low is not None and low >= 0 else maximum(e, 0)
