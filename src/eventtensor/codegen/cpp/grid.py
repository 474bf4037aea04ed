"""Grids: loops that turn claimed tile numbers into coordinates, parametric in the dims.

Tiles are numbered lexicographically. Axes whose extent no earlier coordinate decides are decoded by
division; where one does (ragged grids), the outer axes are walked and the rows counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf, prod

from ...ir.expr import Const, Node, Var
from ...ir.interval import Bounds, DeclaredBounds, Unknown, numeric_bounds
from ...ir.program import Call, GridAxis
from ...ir.walk import free_vars
from ...render.index_text import ExprWriter, paren
from ..emitter import cpp_name
from .dialect import Dialect

_SHORT = 2**31  # tiles, whose numbers 32 bits hold


def walked_axes(call: Call) -> int:
    """How many leading axes are walked: up to the last one that a later extent depends on."""
    last = 0
    for k, axis in enumerate(call.grid):
        used = free_vars(axis.extent)
        last = max([last, *(j + 1 for j in range(k) if call.grid[j].var in used)])
    return last


def _coordinate(x: Unknown) -> Bounds:
    """Coordinates are 0 or more."""
    return (0, None) if isinstance(x, Var) else (None, None)


@dataclass(frozen=True)
class GridWriter:
    out: Dialect
    expr: ExprWriter

    def extent(self, e: Node) -> str:
        """Never negative: the product of two empty axes must stay empty."""
        low = numeric_bounds(e, _coordinate)[0]
        text = self.expr(e)
        return text if low is not None and low >= 0 else f"std::max<int64_t>({text}, 0)"

    @contextmanager
    def tiles(self, call: Call, claim: str) -> Iterator[None]:
        """Run what the caller writes for every tile that `claim` gives, coordinates in scope."""
        walked = walked_axes(call)
        inner = call.grid[walked:]
        with self.out.block(""):
            self.out.line(f"auto tiles = {claim};")
            if walked == 0:
                total = self._sizes(inner)
                each = f"for (int64_t t0 = tiles.next(); t0 < {total}; t0 = tiles.next())"
                with self.out.block(self.out.rolled + each):
                    self._decode(inner, "t0")
                    yield
            else:
                self.out.line("int64_t t0 = tiles.next(), base = 0;")
                with self._walk(call.grid[:walked]):
                    self.out.line(f"const int64_t row = {self._sizes(inner)};")
                    rest = f"{self.out.rolled}for (; t0 < base + row; t0 = tiles.next())"
                    with self.out.block(rest):
                        self._decode(inner, "(t0 - base)")
                        yield
                    self.out.line("base += row;")

    def count(self, call: Call) -> None:
        """Add the number of tiles to `total`."""
        walked = walked_axes(call)
        with self.out.block(""), self._walk(call.grid[:walked]):
            self.out.line(f"total += {self._sizes(call.grid[walked:])};")

    @contextmanager
    def _walk(self, axes: tuple[GridAxis, ...]) -> Iterator[None]:
        for a in axes:
            v = cpp_name(a.var)
            head = f"for (int64_t {v} = 0; {v} < {self.expr(a.extent)}; ++{v})"
            self.out.line(f"{self.out.rolled}{head} {{")
            self.out.deeper()
        yield
        for _ in axes:
            self.out.shallower()
            self.out.line("}")

    def _sizes(self, axes: tuple[GridAxis, ...]) -> str:
        """Name the extents of the axes that are decoded; gives their product."""
        names = []
        for a in axes:
            if isinstance(a.extent, Const):
                names.append(str(max(a.extent.value, 0)))
                continue
            names.append(f"n{len(names)}_{a.var}")
            self.out.line(f"const int64_t {names[-1]} = {self.extent(a.extent)};")
        return " * ".join(names) or "1"

    def _decode(self, axes: tuple[GridAxis, ...], number: str) -> None:
        """By short division, where numbers are small enough: on a GPU a long one is long code."""
        short = len(axes) > 1 and self._tiles(axes) < _SHORT
        number = f"uint32_t({number})" if short else number
        sizes = [
            str(max(a.extent.value, 0)) if isinstance(a.extent, Const)
            else f"uint32_t(n{k}_{a.var})" if short else f"n{k}_{a.var}"
            for k, a in enumerate(axes)
        ]
        for k, a in enumerate(axes):
            after = " * ".join(sizes[k + 1 :])
            text = number if not after else f"{number} / {paren(after)}"
            if k > 0:
                text = f"{text} % {sizes[k]}"
            self.out.line(f"const int64_t {cpp_name(a.var)} = {text};")

    def _tiles(self, axes: tuple[GridAxis, ...]) -> float:
        """The most that there can be."""
        scope = DeclaredBounds(self.expr.program)
        sizes = [scope.upper(a.extent) for a in axes]
        ends = [None if size is None else numeric_bounds(size)[1] for size in sizes]
        return inf if None in ends else prod(max(end, 0) for end in ends if end is not None)
