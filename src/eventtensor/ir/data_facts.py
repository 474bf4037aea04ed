"""Checks run-time data against what a program declares: bounds, order, distinct values, facts.

Debug builds of every target and `kernel.validate` use this one evaluator. Elements that no task has
written are not `known`, and are not checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import BoundViolated, EventTensorError, FactViolated
from .program import Fact, GridAxis, Program
from .tensor import Tensor
from .walk import evaluate, loads_of

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class BrokenFact:
    """A declaration that data breaks: the first element that does, and the number of others.
    `place` is the line of the declaration."""

    error: type[EventTensorError]
    what: str
    place: str

    def __str__(self) -> str:
        return f"{self.what} (at {self.place})"


@dataclass(frozen=True, slots=True)
class ProgramData:
    """The arrays of a program at `dims`. All elements of a tensor without an entry in `known` are
    known."""

    program: Program
    dims: Mapping[str, int]
    arrays: Mapping[str, Array]
    known: Mapping[str, Array]

    def known_mask(self, name: str) -> Array:
        found = self.known.get(name)
        return np.ones(self.arrays[name].shape, np.bool_) if found is None else found

    def load(self, name: str, index: tuple[int, ...]) -> int:
        """One element. Raises Unknown if it is outside, or not written."""
        array, bits = self.arrays[name], self.known.get(name)
        inside = all(0 <= i < s for i, s in zip(index, array.shape, strict=True))
        if not inside or (bits is not None and not bits[index]):
            raise Unknown
        return int(array[index])


class Unknown(Exception):
    """A fact uses an element that is not known."""


def broken_facts(
    data: ProgramData, names: set[str], final: set[str] | None = None
) -> Iterator[BrokenFact]:
    """The declarations of the tensors `names` that the data breaks. A fact counts if all tensors
    that it uses are `final` (by default all that have an array)."""
    final = set(data.arrays) if final is None else final
    for t in data.program.tensors:
        if t.name in names and t.name in data.arrays:
            yield from (*_bound(data, t), *_monotone(data, t), *_distinct(data, t))
    for fact in data.program.facts:
        used = tensors_of(fact)
        if (used & names or not used) and used <= final:
            yield from _fact(data, fact)


def tensors_of(fact: Fact) -> set[str]:
    """The tensors that a fact uses."""
    return {n.tensor for n in loads_of(fact.cond, *(a.extent for a in fact.over))}


def _bound(data: ProgramData, t: Tensor) -> Iterator[BrokenFact]:
    if t.bound is None:
        return
    x = data.arrays[t.name]
    lo, hi = (evaluate(b, data.dims) for b in t.bound)
    bad = np.argwhere(((x < lo) | (x > hi)) & data.known_mask(t.name))
    if len(bad):
        index = _index(bad[0])
        yield BrokenFact(
            BoundViolated,
            f"{_element(t, index)} = {x[index]} is outside its bound {lo}..{hi}{_more(len(bad))}",
            t.place,
        )


def _monotone(data: ProgramData, t: Tensor) -> Iterator[BrokenFact]:
    if not t.monotone:
        return
    x, bits = data.arrays[t.name], data.known_mask(t.name)
    falls: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for row in np.ndindex(x.shape[:-1]):
        known = np.flatnonzero(bits[row])
        for k in np.flatnonzero(x[row][known[1:]] < x[row][known[:-1]]):
            falls.append(((*row, int(known[k])), (*row, int(known[k + 1]))))
    if falls:
        a, b = falls[0]
        yield BrokenFact(
            FactViolated,
            f"{t.name} is declared monotone, but {_element(t, a)} = {x[a]} > {_element(t, b)} = "
            f"{x[b]}{_more(len(falls))}",
            t.place,
        )


def _distinct(data: ProgramData, t: Tensor) -> Iterator[BrokenFact]:
    x, bits = data.arrays[t.name], data.known_mask(t.name)
    if not t.distinct or x.size == 0:
        return
    rest = [k for k in range(x.ndim) if k not in t.distinct]
    repeats: list[str] = []
    for row in np.ndindex(tuple(x.shape[k] for k in rest)):
        key: list[Any] = [slice(None)] * x.ndim
        for k, i in zip(rest, row, strict=True):
            key[k] = i
        here, there = x[tuple(key)], np.argwhere(bits[tuple(key)])
        values = here[tuple(there.T)]
        order = np.argsort(values, kind="stable")
        same = np.flatnonzero(values[order][1:] == values[order][:-1])
        for s in same:
            twice = [_whole(key, there[order[s + j]]) for j in (0, 1)]
            repeats.append(
                f"{values[order[s]]} twice, at {_element(t, twice[0])} and {_element(t, twice[1])}"
            )
    if repeats:
        yield BrokenFact(
            FactViolated,
            f"{t.name} is declared distinct over axes {list(t.distinct)}, but holds {repeats[0]}"
            f"{_more(len(repeats))}",
            t.place,
        )


def _whole(key: list[Any], inner: Array) -> tuple[int, ...]:
    """An index of the tensor, from one along the axes that `key` leaves open."""
    left = [int(i) for i in inner]
    return tuple(left.pop(0) if isinstance(k, slice) else int(k) for k in key)


def _fact(data: ProgramData, fact: Fact) -> Iterator[BrokenFact]:
    wrong: list[str] = []
    for env in _points(data, fact.over, dict(data.dims)):
        try:
            holds = evaluate(fact.cond, env, data.load)
        except Unknown:
            continue
        if not holds:
            at = [f"{a.var} = {env[a.var]}" for a in fact.over] or ["the given dims"]
            wrong.append(f"{', '.join(at)}{_values(data, fact, env)}")
    if wrong:
        yield BrokenFact(
            FactViolated,
            f"the fact {fact.cond} is false at {wrong[0]}{_more(len(wrong))}",
            fact.place,
        )


def _values(data: ProgramData, fact: Fact, env: Mapping[str, int]) -> str:
    """The run-time values of a fact at one point, as text."""
    seen = []
    for n in loads_of(fact.cond):
        index = [evaluate(i, env, data.load) for i in n.index]
        seen.append(f"{n.tensor}{index} = {data.load(n.tensor, tuple(index))}")
    return f", where {', '.join(seen)}" if seen else ""


def _points(
    data: ProgramData, over: tuple[GridAxis, ...], env: dict[str, int]
) -> Iterator[dict[str, int]]:
    if not over:
        yield env
        return
    try:
        extent = evaluate(over[0].extent, env, data.load)
    except Unknown:
        return
    for v in range(extent):
        yield from _points(data, over[1:], {**env, over[0].var: v})


def _index(found: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in found)


def _element(t: Tensor, index: tuple[int, ...]) -> str:
    return f"{t.name}{list(index)}"


def _more(count: int) -> str:
    """The number of elements after the first, as text."""
    return f" (and {count - 1} more)" if count > 1 else ""
