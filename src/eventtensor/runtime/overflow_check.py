"""Sizes of a launch in Python's integers: what generated code would count wrongly in 64 bits is
refused before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import LaunchTooLarge
from ..ir.allocate import at_dims
from ..ir.expr import Const, Dim, Node, product
from ..ir.interval import numeric_bounds
from ..ir.tensor import Tensor
from ..ir.walk import dims_of, evaluate, walk

MOST = 2**62  # a sum of two still fits into 64 bits
_REMEMBERED = 1024


@dataclass(frozen=True, slots=True)
class Count:
    """`what` ends in what is counted, as in: call 'w' has tasks."""

    what: str
    value: Node


class Sizes:
    """Checks a launch by its dims. What no dims in range can make too large is never looked at, and
    dims that passed are remembered: a second check is a look."""

    def __init__(
        self, dims: tuple[Dim, ...], tensors: tuple[Tensor, ...], counts: tuple[Count, ...]
    ) -> None:
        own = [Count(f"dim '{d.name}' has elements", d) for d in dims]
        bytes_ = [Count(f"tensor '{t.name}' has bytes", product([*t.shape, Const(t.dtype.size)]))
                  for t in tensors]
        self._counts = tuple(c for c in (*own, *bytes_, *counts) if not _always_fits(c))
        self._deciding = sorted({d.name for c in self._counts for d in dims_of(c.value)})
        self._fine: set[tuple[int, ...]] = set()

    def check(self, dims: Mapping[str, int]) -> None:
        key = tuple(dims[name] for name in self._deciding)
        if key in self._fine:
            return
        for c in self._counts:
            _check(c, dims)
        if len(self._fine) == _REMEMBERED:
            self._fine.clear()
        self._fine.add(key)


def _always_fits(c: Count) -> bool:
    """Whether every step of the evaluation does, for all dims in range."""
    ends = [end for n in walk(c.value) for end in numeric_bounds(n)]
    return all(end is not None and abs(end) <= MOST for end in ends)


def _check(c: Count, dims: Mapping[str, int]) -> None:
    """Every step of the evaluation counts, for generated code takes the same."""
    top = max(abs(evaluate(n, dims)) for n in walk(c.value))
    if top > MOST:
        used = {d.name: dims[d.name] for d in dims_of(c.value)}
        subject, _, counted = c.what.rpartition(" has ")
        raise LaunchTooLarge(
            f"{subject} has {evaluate(c.value, dims)} {counted}, and a launch counts to 2^62"
            f"{at_dims(used)}")
