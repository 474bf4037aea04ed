"""Debug checks of what the proof took as true about run-time data: bounds, order, distinctness and
facts. Each is looked at over the elements written so far, when a task first loads from the tensor
after it changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from ..errors import BoundViolated, FactViolated
from ..ir.functions import Functions
from ..ir.program import Fact
from ..ir.tensor import Tensor
from ..ir.walk import loads_of
from .evaluate import Place
from .memory import Memory
from .numbers import Array
from .regions import grid_points, point


class _Unknown(Exception):
    """A fact needs an element that is not written yet."""


@dataclass(slots=True)
class Obligations:
    memory: Memory
    dims: Mapping[str, int]
    functions: Functions = field(default_factory=Functions)
    stale: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.stale = {t.name for t in self.memory.program.tensors}

    def changed(self, tensors: set[str]) -> None:
        self.stale |= tensors

    def loaded(self, name: str, index: tuple[int, ...], value: int, who: Place) -> None:
        """Check everything stated about a tensor that `who` just loaded from."""
        tensor = self.memory.program.tensor(name)
        if tensor.bound is not None:
            lo, hi = (self.functions.value(b, self.dims) for b in tensor.bound)
            if not lo <= value <= hi:
                raise BoundViolated(
                    f"{name}{list(index)} is {value}, declared in {lo}..{hi} "
                    f"(loaded by {who.label})",
                    place=who.place,
                )
        if name not in self.stale:
            return
        self.stale.discard(name)
        self._monotone(tensor, who)
        self._distinct(tensor, who)
        for fact in self.memory.program.facts:
            tensors = {ld.tensor for ld in loads_of(fact.cond, *(a.extent for a in fact.over))}
            if name in tensors:
                self._fact(fact, who)

    def _values(self, tensor: Tensor) -> tuple[Array, Array]:
        array = self.memory.arrays[tensor.name]
        bits = self.memory.written.get(tensor.name)
        return array, np.ones(array.shape, np.bool_) if bits is None else bits

    def _monotone(self, tensor: Tensor, who: Place) -> None:
        if not tensor.monotone:
            return
        array, bits = self._values(tensor)
        for row in np.ndindex(array.shape[:-1]):
            known = np.flatnonzero(bits[row])
            for a, b in pairwise(int(k) for k in known):
                if array[row][a] > array[row][b]:
                    raise FactViolated(
                        f"{tensor.name} is declared monotone, but {tensor.name}{[*row, a]} = "
                        f"{array[row][a]} > {tensor.name}{[*row, b]} = {array[row][b]} "
                        f"(loaded by {who.label})",
                        place=who.place,
                    )

    def _distinct(self, tensor: Tensor, who: Place) -> None:
        if not tensor.distinct:
            return
        array, bits = self._values(tensor)
        rest = [k for k in range(array.ndim) if k not in tensor.distinct]
        order = (*rest, *tensor.distinct)
        moved, known = np.transpose(array, order), np.transpose(bits, order)
        for row in np.ndindex(moved.shape[: len(rest)]):
            values, counts = np.unique(moved[row][known[row]], return_counts=True)
            if (counts > 1).any():
                where = f" at {list(row)}" if row else ""
                raise FactViolated(
                    f"{tensor.name} is declared distinct over axes {list(tensor.distinct)}, but "
                    f"holds {values[counts > 1][0]} twice{where} (loaded by {who.label})",
                    place=who.place,
                )

    def _fact(self, fact: Fact, who: Place) -> None:
        try:
            places = list(grid_points(fact.over, self.dims, self._peek, self.functions))
        except _Unknown:
            return
        for env in places:
            try:
                holds = self.functions.value(fact.cond, env, self._peek)
            except _Unknown:
                continue
            if not holds:
                at = ", ".join(f"{a.var} = {env[a.var]}" for a in fact.over)
                raise FactViolated(
                    f"the fact {fact.cond} is false at {at} (loaded by {who.label})",
                    place=who.place,
                )

    def _peek(self, tensor: str, index: tuple[int, ...]) -> int:
        shape = self.memory.shape(tensor)
        inside = all(0 <= i < s for i, s in zip(index, shape, strict=True))
        if not inside or self.memory.first_unwritten(point(tensor, index)) is not None:
            raise _Unknown
        return int(self.memory.arrays[tensor][index])
