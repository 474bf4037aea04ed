"""Index expressions and nests as Python functions.

The interpreter evaluates the same expressions for thousands of tasks; a closure is faster than
`walk.evaluate`. Results are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import assert_never

from .expr import (
    Compare,
    Const,
    Dim,
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
)
from .plan import Nest
from .walk import LoadFn

Env = Mapping[str, int]
Function = Callable[[Env, LoadFn], int]
Visitor = Callable[[Env, LoadFn], list[tuple[int, ...]]]


def no_load(tensor: str, index: tuple[int, ...]) -> int:
    """The load function of expressions without run-time data."""
    raise AssertionError(f"no run-time data for {tensor}{list(index)}")


def function_of(e: Node) -> Function:
    """A function that returns what `walk.evaluate` returns."""
    match e:
        case Const(v):
            return lambda env, load: v
        case Dim(name, _, _) | Var(name):
            return lambda env, load: env[name]
        case Sum(((term, 1),), const):
            f = function_of(term)
            return lambda env, load: f(env, load) + const
        case Sum(terms, const):
            parts = [(c, function_of(t)) for t, c in terms]
            return lambda env, load: sum([c * f(env, load) for c, f in parts], const)
        case Prod(factors):
            all = [function_of(f) for f in factors]
            return lambda env, load: prod([f(env, load) for f in all])
        case FloorDiv(a, k):
            f = function_of(a)
            return lambda env, load: f(env, load) // k
        case Mod(a, k):
            f = function_of(a)
            return lambda env, load: f(env, load) % k
        case Load(tensor, (i, j)):
            f, g = function_of(i), function_of(j)
            return lambda env, load: load(tensor, (f(env, load), g(env, load)))
        case Load(tensor, index):
            at = [function_of(i) for i in index]
            return lambda env, load: load(tensor, tuple([f(env, load) for f in at]))
        case Min() | Max() | Compare() | Select():
            return _binary_function(e)
        case _:
            assert_never(e)


def _binary_function(e: Min | Max | Compare | Select) -> Function:
    f, g = function_of(e.a), function_of(e.b)
    match e:
        case Min():
            return lambda env, load: min(f(env, load), g(env, load))
        case Max():
            return lambda env, load: max(f(env, load), g(env, load))
        case Compare("<=", _, _):
            return lambda env, load: int(f(env, load) <= g(env, load))
        case Compare():
            return lambda env, load: int(f(env, load) == g(env, load))
        case Select(cond, _, _):
            c = function_of(cond)
            return lambda env, load: f(env, load) if c(env, load) else g(env, load)


def visitor_of(nest: Nest) -> Visitor:
    """A function that returns what `plan.visit` yields, as a list."""
    axes = [(a.var, function_of(a.lo), function_of(a.hi), a.step) for a in nest.axes]
    guards = [function_of(g) for g in nest.guards]
    index = [function_of(i) for i in nest.index]

    def visit_one(env: Env, load: LoadFn) -> list[tuple[int, ...]]:
        for guard in guards:
            if not guard(env, load):
                return []
        return [tuple([i(env, load) for i in index])]

    if not axes:
        return visit_one

    def level(k: int, env: Env, load: LoadFn, out: list[tuple[int, ...]]) -> None:
        if k == len(axes):
            out += visit_one(env, load)
            return
        var, lo, hi, step = axes[k]
        for v in range(lo(env, load), hi(env, load), step):
            level(k + 1, {**env, var: v}, load, out)

    def visit(env: Env, load: LoadFn) -> list[tuple[int, ...]]:
        out: list[tuple[int, ...]] = []
        level(0, env, load, out)
        return out

    return visit


class ExprFunctions:
    """The functions of the expressions and nests of one run, each built at its first use."""

    def __init__(self) -> None:
        self._values: dict[int, tuple[Node, Function]] = {}
        self._visits: dict[int, tuple[Nest, Visitor]] = {}

    def value(self, e: Node, env: Env, load: LoadFn = no_load) -> int:
        found = self._values.get(id(e))
        if found is None:
            found = self._values[id(e)] = e, function_of(e)
        return found[1](env, load)

    def visit(self, nest: Nest, env: Env, load: LoadFn = no_load) -> list[tuple[int, ...]]:
        found = self._visits.get(id(nest))
        if found is None:
            found = self._visits[id(nest)] = nest, visitor_of(nest)
        return found[1](env, load)

