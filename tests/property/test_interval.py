"""Intervals of random index expressions, against all values that the expressions take."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from eventtensor.ir.expr import (
    Const,
    Dim,
    Load,
    Node,
    Prod,
    Var,
    add,
    compare,
    floordiv,
    maximum,
    minimum,
    mod,
    mul,
    select,
)
from eventtensor.ir.interval import Bounds, Unknown, numeric_bounds, symbolic_bounds
from eventtensor.ir.walk import evaluate, rebuild, walk

N, M = Dim("n", 1, 3), Dim("m", 0, 2)
DIMS = [{"n": n, "m": m} for n in range(1, 4) for m in range(3)]
# A run-time value stands for itself: its tensor has one element.
UNKNOWNS: dict[Unknown, tuple[Node, Node]] = {
    Var("i"): (Const(0), add(N, Const(-1))),
    Var("j"): (mul(Const(-1), M), Const(1)),
    Load("t", ()): (Const(-2), add(M, Const(-1))),
    Load("u", ()): (Const(0), M),
}
KEYS = {Var("i"): "i", Var("j"): "j", Load("t", ()): "t", Load("u", ()): "u"}
OPEN = "without a low end", "without a high end", "with both ends"


def number(low: int, high: int) -> st.SearchStrategy[Node]:
    return st.integers(low, high).map(Const)


def grow(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    pairs, scale = st.tuples(inner, inner), st.integers(1, 4)
    return st.one_of(
        pairs.map(lambda p: add(*p)), pairs.map(lambda p: mul(*p)),
        pairs.map(lambda p: minimum(*p)), pairs.map(lambda p: maximum(*p)),
        st.tuples(inner, scale).map(lambda p: floordiv(*p)),
        st.tuples(inner, scale).map(lambda p: mod(*p)),
        st.tuples(inner, number(-3, 3)).map(lambda p: mul(*p)),
        pairs.map(lambda p: compare("<=", *p)),
        st.tuples(inner, inner, inner).map(lambda p: select(compare("<=", p[0], Const(0)), *p[1:])),
    )


LEAVES = st.one_of(st.sampled_from([N, M, *UNKNOWNS]), number(-3, 3))
EXPRESSIONS = st.recursive(LEAVES, grow, max_leaves=7)


@st.composite
def apart(draw: st.DrawFn, leaves: list[Node], times: Callable[[Node, Node], Node]) -> Node:
    """Uses each leaf once, in steps that rise or fall with each operand: intervals are exact."""
    if len(leaves) == 1:
        return leaves[0]
    cut = draw(st.integers(1, len(leaves) - 1))
    a, b = (draw(apart(part, times)) for part in (leaves[:cut], leaves[cut:]))
    found = draw(st.sampled_from([add, times, minimum, maximum]))(a, b)
    scale = Const(draw(st.sampled_from([-2, -1, 1, 3])))
    whole = add(mul(scale, found), Const(draw(st.integers(-2, 2))))
    return floordiv(whole, draw(st.integers(1, 3)))


def sizes(a: Node, b: Node) -> Node:
    return mul(maximum(a, 0), maximum(b, 0))


def with_sizes(e: Node) -> Node:
    """With sizes for factors: never negative."""
    return rebuild(e, lambda n: _product_of_sizes(n) if isinstance(n, Prod) else None)


def _product_of_sizes(n: Prod) -> Node:
    return reduce(sizes, map(with_sizes, n.factors))


def values(e: Node, dims: dict[str, int], open_: dict[Unknown, str]) -> list[int]:
    """All that `e` is at these dims; what has no end goes beyond its range there."""
    used = [x for x in UNKNOWNS if x in set(walk(e))]
    ranges = []
    for x in used:
        low, high = UNKNOWNS[x]
        first, last = evaluate(low, dims), evaluate(high, dims)
        first -= 3 * (open_.get(x) == OPEN[0])
        last += 3 * (open_.get(x) == OPEN[1])
        ranges.append(range(first, last + 1))
    found = []
    for point in product(*ranges):
        at = dict(zip([KEYS[x] for x in used], point, strict=True))
        found.append(evaluate(e, {**dims, **at}, lambda tensor, _, at=at: at[tensor]))
    return found


def symbolic(open_: dict[Unknown, str]):
    def known(x: Unknown) -> tuple[Node | None, Node | None]:
        low, high = UNKNOWNS[x]
        return None if open_.get(x) == OPEN[0] else low, None if open_.get(x) == OPEN[1] else high

    return known


def numeric(open_: dict[Unknown, str]):
    def known(x: Unknown) -> Bounds:
        low, high = symbolic(open_)(x)
        return (None if low is None else numeric_bounds(low)[0],
                None if high is None else numeric_bounds(high)[1])

    return known


def holds(ends: Bounds, found: list[int]) -> bool:
    low, high = ends
    return all((low is None or low <= x) and (high is None or x <= high) for x in found)


OPENINGS = st.dictionaries(st.sampled_from(list(UNKNOWNS)), st.sampled_from(OPEN))


@settings(max_examples=150)
@given(EXPRESSIONS, OPENINGS)
def test_numbers_hold_every_value(e: Node, open_: dict[Unknown, str]) -> None:
    ends = numeric_bounds(e, numeric(open_))
    for dims in DIMS:
        assert holds(ends, values(e, dims, open_)), (e, ends, dims)


@settings(max_examples=150)
@given(EXPRESSIONS.map(with_sizes), OPENINGS)
def test_expressions_over_dims_hold_every_value(e: Node, open_: dict[Unknown, str]) -> None:
    low, high = symbolic_bounds(e, symbolic(open_))
    for dims in DIMS:
        ends = tuple(None if end is None else evaluate(end, dims) for end in (low, high))
        assert holds(ends, values(e, dims, open_)), (e, low, high, dims)


@settings(max_examples=40)
@given(st.permutations(list(UNKNOWNS)).flatmap(lambda x: apart(x, sizes)))
def test_ends_are_values_if_each_unknown_stands_once(e: Node) -> None:
    low, high = symbolic_bounds(e, symbolic({}))
    assert low is not None and high is not None
    for dims in DIMS:
        found = values(e, dims, {})
        assert (evaluate(low, dims), evaluate(high, dims)) == (min(found), max(found)), (e, dims)


@settings(max_examples=80)
@given(st.permutations([N, M]).flatmap(lambda x: apart(x, mul)))
def test_numbers_are_values_if_each_dim_stands_once(e: Node) -> None:
    found = [evaluate(e, dims) for dims in DIMS]
    assert numeric_bounds(e) == (min(found), max(found))


def test_a_minimum_is_bounded_by_the_side_that_is_known() -> None:
    e = minimum(Var("s"), N)
    assert numeric_bounds(e) == (None, 3) and symbolic_bounds(e) == (None, N)


def test_a_product_is_bounded_if_one_factor_may_be_far_below_zero() -> None:
    clipped = minimum(Const(8), add(N, mul(Const(-1), Var("s"))))
    assert numeric_bounds(mul(clipped, M)) == (None, 16)
    assert numeric_bounds(mul(clipped, clipped)) == (None, None)
    assert numeric_bounds(mul(minimum(Var("s"), -1), M)) == (None, 0)


def test_factors_of_what_sizes_memory_are_never_negative() -> None:
    clipped = minimum(Const(8), add(N, mul(Const(-1), Var("s"))))
    assert symbolic_bounds(mul(clipped, clipped)) == (Const(0), Const(64))
