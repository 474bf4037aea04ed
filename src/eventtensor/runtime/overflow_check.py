"""Refuses launches whose sizes overflow the 64-bit integers of generated code.

Sizes are evaluated in Python's integers before the launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import LaunchTooLarge
from ..ir.allocate import at_dims
from ..ir.expr import Const, Dim, Node, product
from ..ir.interval import numeric_bounds
from ..ir.tensor import Tensor
from ..ir.walk import dims_of, evaluate, walk

MAX_COUNT = 2**62  # a sum of two fits into 64 bits
_MAX_PASSED_DIMS = 1024


@dataclass(frozen=True, slots=True)
class Count:
    """A number that a launch computes. `what` ends in the counted things: call 'w' has tasks."""

    what: str
    value: Node


class OverflowCheck:
    """Checks the dims of launches. Counts that no dims in range make too large are skipped. Dims
    that passed are cached, so a second check is cheap."""

    def __init__(
        self, dims: tuple[Dim, ...], tensors: tuple[Tensor, ...], counts: tuple[Count, ...]
    ) -> None:
        own = [Count(f"dim '{d.name}' has elements", d) for d in dims]
        bytes_ = [Count(f"tensor '{t.name}' has bytes", product([*t.shape, Const(t.dtype.size)]))
                  for t in tensors]
        self._counts = tuple(c for c in (*own, *bytes_, *counts) if not _always_fits(c))
        self._deciding = sorted({d.name for c in self._counts for d in dims_of(c.value)})
        self._passed: set[tuple[int, ...]] = set()

    def check(self, dims: Mapping[str, int]) -> None:
        key = tuple(dims[name] for name in self._deciding)
        if key in self._passed:
            return
        for c in self._counts:
            _check_count(c, dims)
        if len(self._passed) == _MAX_PASSED_DIMS:
            self._passed.clear()
        self._passed.add(key)


def _always_fits(c: Count) -> bool:
    """True if every step of the evaluation fits, for all dims in range."""
    ends = [end for n in walk(c.value) for end in numeric_bounds(n)]
    return all(end is not None and abs(end) <= MAX_COUNT for end in ends)


def _check_count(c: Count, dims: Mapping[str, int]) -> None:
    """Check every step of the evaluation, because generated code takes the same steps."""
    top = max(abs(evaluate(n, dims)) for n in walk(c.value))
    if top > MAX_COUNT:
        used = {d.name: dims[d.name] for d in dims_of(c.value)}
        subject, _, counted = c.what.rpartition(" has ")
        raise LaunchTooLarge(
            f"{subject} has {evaluate(c.value, dims)} {counted}, and a launch counts to 2^62"
            f"{at_dims(used)}")
