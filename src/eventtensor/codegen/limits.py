"""Ends of index expressions as expressions of dims alone: how many cells to keep for grids
whose size hangs on run-time data or on earlier coordinates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

from ..errors import UnboundedGrid
from ..ir.expr import (
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
    add,
    floordiv,
    maximum,
    minimum,
    mul,
    product,
)
from ..ir.interval import numeric_bounds
from ..ir.program import GridAxis, Program

Ends = tuple[Node, Node]


@dataclass(frozen=True)
class Limits:
    """`ranges` holds the ends of the variables in scope."""

    program: Program
    ranges: Mapping[str, Ends] = field(default_factory=dict)

    def upper(self, e: Node) -> Node:
        return self.ends(e)[1]

    def ends(self, e: Node) -> Ends:
        match e:
            case Const() | Dim():
                return e, e
            case Var(name):
                if name not in self.ranges:
                    raise UnboundedGrid(f"no range is known for '{name}'", place=self.program.name)
                return self.ranges[name]
            case Load(tensor, _):
                bound = self.program.tensor(tensor).bound
                if bound is None:
                    raise UnboundedGrid(
                        f"'{e}' sizes a grid, but tensor '{tensor}' has no declared bound",
                        place=self.program.name,
                    )
                return bound
            case Sum(terms, const):
                return self._sum(terms, const)
            case Prod(factors):  # extents and counts: no factor is negative
                found = [self.ends(f) for f in factors]
                return product([f[0] for f in found]), product([f[1] for f in found])
            case FloorDiv(a, k):
                lo, hi = self.ends(a)
                return floordiv(lo, k), floordiv(hi, k)
            case Mod(_, k):
                return Const(0), Const(k - 1)
            case Min(a, b):
                (la, ha), (lb, hb) = self.ends(a), self.ends(b)
                return minimum(la, lb), minimum(ha, hb)
            case Max(a, b):
                (la, ha), (lb, hb) = self.ends(a), self.ends(b)
                return maximum(la, lb), maximum(ha, hb)
            case Compare():
                return Const(0), Const(1)
            case Select(_, a, b):
                (la, ha), (lb, hb) = self.ends(a), self.ends(b)
                return minimum(la, lb), maximum(ha, hb)
            case _:
                assert_never(e)

    def _sum(self, terms: tuple[tuple[Node, int], ...], const: int) -> Ends:
        lo: Node = Const(const)
        hi: Node = Const(const)
        for t, c in terms:
            a, b = self.ends(t)
            if c < 0:
                a, b = b, a
            lo, hi = add(lo, mul(Const(c), a)), add(hi, mul(Const(c), b))
        return lo, hi

    def within(self, axes: tuple[GridAxis, ...]) -> Limits:
        """With the coordinates of `axes` in scope."""
        ranges = dict(self.ranges)
        for a in axes:
            top = Limits(self.program, ranges).upper(a.extent)
            ranges[a.var] = (Const(0), maximum(add(top, Const(-1)), 0))
        return Limits(self.program, ranges)


def box(program: Program, axes: tuple[GridAxis, ...]) -> tuple[Node, ...]:
    """Extents, over dims alone, of a box that holds every coordinate of `axes`."""
    out: list[Node] = []
    scope = Limits(program)
    for a in axes:
        top = scope.upper(a.extent)
        low = numeric_bounds(top)[0]
        out.append(top if low is not None and low >= 0 else maximum(top, 0))
        scope = scope.within((a,))
    return tuple(out)
