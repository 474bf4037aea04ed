"""Intervals that hold every value of an index expression.

`numeric_bounds` gives numbers. `symbolic_bounds` gives expressions over dims, which size memory.
Both apply the same rules. The caller says what bounds variables and run-time data; an end without
a bound is None. Exact sets of tasks are not here: isl computes them (analysis/sets).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import mul
from typing import TYPE_CHECKING, Generic, TypeVar, assert_never

from .expr import (
    Compare,
    Const,
    Dim,
    Expr,
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
    maximum,
    minimum,
    wrap,
)

if TYPE_CHECKING:  # artifacts are loaded without the tile language
    from .program import GridAxis, Program

T = TypeVar("T")
End = TypeVar("End", int, Expr)
Unknown = Var | Load
Terms = tuple[tuple[Node, int], ...]
Bounds = tuple[int | None, int | None]
SymbolicBounds = tuple[Node | None, Node | None]
KnownBounds = Callable[[Unknown], Bounds]


def unbounded(_: Unknown) -> tuple[None, None]:
    """Nothing bounds a variable or run-time data."""
    return None, None


def nonnegative(_: Unknown) -> Bounds:
    """Variables and run-time data are 0 or more."""
    return 0, None


def numeric_bounds(e: Node, known: KnownBounds = unbounded) -> Bounds:
    """Numbers below and above every value, for all dims in range."""

    def leaf(x: Dim | Unknown) -> Bounds:
        return (x.min, x.max) if isinstance(x, Dim) else known(x)

    return _Rules(leaf, int, min, max, _product).bounds(e)


def symbolic_bounds(
    e: Node, known: Callable[[Unknown], SymbolicBounds] = unbounded
) -> SymbolicBounds:
    """Expressions over dims, below and above every value. `known` gives such expressions too.
    Factors of a product are sizes, which are never negative."""

    def leaf(x: Dim | Unknown) -> SymbolicBounds:
        return (x, x) if isinstance(x, Dim) else known(x)

    low, high = _Rules[Expr](leaf, Const, minimum, maximum, _size_product).bounds(e)
    return None if low is None else wrap(low), None if high is None else wrap(high)


@dataclass(frozen=True)
class DeclaredBounds:
    """What a program declares of its run-time data, and the ranges of variables, over dims."""

    program: Program
    ranges: dict[str, SymbolicBounds] = field(default_factory=dict)

    def known(self, x: Unknown) -> SymbolicBounds:
        if isinstance(x, Var):
            return self.ranges.get(x.name, (None, None))
        return self.program.tensor(x.tensor).bound or (None, None)

    def known_numbers(self, x: Unknown) -> Bounds:
        low, high = self.known(x)
        return (None if low is None else numeric_bounds(low)[0],
                None if high is None else numeric_bounds(high)[1])

    def upper(self, e: Node) -> Node | None:
        return symbolic_bounds(e, self.known)[1]

    def add_counter(self, var: str, extent: Node) -> None:
        """Put a variable in scope that counts from 0 to an extent, which is not reached."""
        end = self.upper(extent)
        self.ranges[var] = Const(0), None if end is None else maximum(add(end, Const(-1)), 0)


def within(ranges: Mapping[str, Bounds]) -> KnownBounds:
    """What `numeric_bounds` may know: the ranges of some variables."""
    return lambda x: ranges.get(x.name, (None, None)) if isinstance(x, Var) else (None, None)


def counter_bounds(extent: Bounds) -> Bounds:
    """The range of a variable that counts from 0 to an extent, which is not reached."""
    most = extent[1]
    return 0, None if most is None else max(most - 1, 0)


def coordinate_bounds(axes: Iterable[GridAxis]) -> dict[str, Bounds]:
    """The ranges of coordinates; an extent may use the coordinates before it."""
    ranges: dict[str, Bounds] = {}
    for axis in axes:
        ranges[axis.var] = counter_bounds(numeric_bounds(axis.extent, within(ranges)))
    return ranges


def at_least_zero(e: Node) -> Node:
    """The extent, or 0 where the ranges of the dims let it be negative."""
    low, _ = numeric_bounds(e)
    return e if low is not None and low >= 0 else maximum(e, 0)


# ---- rules ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rules(Generic[End]):
    """The rules for one kind of ends: numbers or expressions."""

    leaf: Callable[[Dim | Unknown], tuple[End | None, End | None]]
    constant: Callable[[int], End]
    minimum: Callable[[End, End], End]
    maximum: Callable[[End, End], End]
    product: Callable[
        [tuple[End | None, End | None], tuple[End | None, End | None]],
        tuple[End | None, End | None]]

    def bounds(self, e: Node) -> tuple[End | None, End | None]:
        match e:
            case Const(v):
                return self.constant(v), self.constant(v)
            case Dim() | Var() | Load():
                return self.leaf(e)
            case Sum(terms, const):
                return self._sum(terms, const)
            case Prod(factors):
                return reduce(self.product, map(self.bounds, factors))
            case FloorDiv(a, k):
                low, high = self.bounds(a)
                return None if low is None else low // k, None if high is None else high // k
            case Mod(_, k):
                return self.constant(0), self.constant(k - 1)
            case Min(a, b):
                (la, ha), (lb, hb) = self.bounds(a), self.bounds(b)
                return _both(self.minimum, la, lb), _either(self.minimum, ha, hb)
            case Max(a, b):
                (la, ha), (lb, hb) = self.bounds(a), self.bounds(b)
                return _either(self.maximum, la, lb), _both(self.maximum, ha, hb)
            case Compare():
                return self.constant(0), self.constant(1)
            case Select(_, a, b):
                (la, ha), (lb, hb) = self.bounds(a), self.bounds(b)
                return _both(self.minimum, la, lb), _both(self.maximum, ha, hb)
            case _:
                assert_never(e)

    def _sum(self, terms: Terms, const: int) -> tuple[End | None, End | None]:
        low: End | None = self.constant(const)
        high: End | None = self.constant(const)
        for term, scale in terms:
            a, b = self.bounds(term) if scale > 0 else reversed(self.bounds(term))
            low = None if low is None or a is None else low + a * scale
            high = None if high is None or b is None else high + b * scale
        return low, high


def _product(x: Bounds, y: Bounds) -> Bounds:
    """The ends lie at the corners. A factor without a lower end needs one beside it that is never
    negative."""
    (a, b), (c, d) = x, y
    if a is not None and a >= 0 and c is not None and c >= 0:
        return a * c, _both(mul, b, d)
    if a is not None and b is not None and c is not None and d is not None:
        corners = [p * q for p in (a, b) for q in (c, d)]
        return min(corners), max(corners)
    has_size = any(low is not None and low >= 0 for low in (a, c))
    if has_size and b is not None and d is not None:
        return None, max(b, 0) * max(d, 0)
    return None, None


def _size_product(
    x: tuple[Expr | None, Expr | None], y: tuple[Expr | None, Expr | None]
) -> tuple[Expr | None, Expr | None]:
    lows = [low for low, _ in (x, y) if low is not None and at_least_zero(wrap(low)) == low]
    return lows[0] * lows[1] if len(lows) == 2 else Const(0), _both(mul, x[1], y[1])


def _both(pick: Callable[[T, T], T], a: T | None, b: T | None) -> T | None:
    return None if a is None or b is None else pick(a, b)


def _either(pick: Callable[[T, T], T], a: T | None, b: T | None) -> T | None:
    if a is None:
        return b
    return a if b is None else pick(a, b)
