"""Debug: declared facts about run-time data, checked on arguments before a launch and on what tasks
computed after it. Elements that still hold the poison of a debug launch were not written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import BoundViolated, FactViolated
from ..ir.program import Fact, GridAxis, Program
from ..ir.tensor import Tensor
from ..ir.walk import evaluate, loads_of

Array = npt.NDArray[Any]
Known = npt.NDArray[np.bool_]


def check_inputs(program: Program, dims: Mapping[str, int], arrays: Mapping[str, Array]) -> None:
    """Facts about tensors whose values are there before the launch."""
    given = {t.name for t in program.tensors if t.role.starts_defined and t.name in arrays}
    _check(program, dims, arrays, given, {n: np.ones_like(arrays[n], np.bool_) for n in given},
           given - _written(program))


def check_computed(program: Program, dims: Mapping[str, int], arrays: Mapping[str, Array]) -> None:
    """Facts about tensors that tasks wrote, as the launch left them."""
    whole = {t.name for t in program.tensors if t.role.starts_defined}
    known = {
        n: np.ones_like(x, np.bool_) if n in whole else ~is_poison(x) for n, x in arrays.items()
    }
    _check(program, dims, arrays, _written(program), known, set(arrays))


def is_poison(x: Array) -> Known:
    """Elements all of whose bits are set: NaN in every float format, -1 or 255 in integers."""
    bytes_ = np.ascontiguousarray(x).view(np.uint8).reshape(*x.shape, x.dtype.itemsize)
    found: Known = (bytes_ == 0xFF).all(axis=-1)
    return found


def _written(program: Program) -> set[str]:
    return {r.tensor for p in program.calls for r in (*p.call.accumulates, *p.call.writes)}


def _check(
    program: Program, dims: Mapping[str, int], arrays: Mapping[str, Array], names: set[str],
    known: Mapping[str, Known], facts_over: set[str],
) -> None:
    for t in program.tensors:
        if t.name in names:
            _bound(t, dims, arrays[t.name], known[t.name])
            _monotone(t, arrays[t.name], known[t.name])
            _distinct(t, arrays[t.name], known[t.name])
    for f in program.facts:
        used = {n.tensor for n in loads_of(f.cond, *(a.extent for a in f.over))}
        if used <= facts_over and used & names:
            _fact(f, dims, arrays, known)


def _bound(t: Tensor, dims: Mapping[str, int], x: Array, known: Known) -> None:
    if t.bound is None or x.size == 0:
        return
    lo, hi = (evaluate(b, dims) for b in t.bound)
    bad = np.argwhere(((x < lo) | (x > hi)) & known)
    if len(bad):
        index = tuple(int(i) for i in bad[0])
        raise BoundViolated(
            f"{t.name}{list(index)} = {x[index]} is outside its bound {lo}..{hi}"
        )


def _monotone(t: Tensor, x: Array, known: Known) -> None:
    if not t.monotone or x.ndim == 0 or x.shape[-1] < 2:
        return
    falls = (x[..., 1:] < x[..., :-1]) & known[..., 1:] & known[..., :-1]
    bad = np.argwhere(falls)
    if len(bad):
        index = [int(i) for i in bad[0]]
        raise FactViolated(f"{t.name} is declared monotone but falls after {t.name}{index}")


def _distinct(t: Tensor, x: Array, known: Known) -> None:
    if not t.distinct or x.size == 0:
        return
    rest = tuple(k for k in range(x.ndim) if k not in t.distinct)
    count = int(np.prod([x.shape[k] for k in t.distinct], dtype=np.int64))
    order = rest + tuple(t.distinct)
    rows = np.transpose(x, order).reshape(-1, count)
    there = np.transpose(known, order).reshape(-1, count)
    for row, keep in zip(rows, there, strict=True):
        values, seen = np.unique(row[keep], return_counts=True)
        if len(values) < keep.sum():
            raise FactViolated(
                f"{t.name} is declared distinct over axes {t.distinct} but holds "
                f"{values[seen > 1][0]} twice"
            )


class _Unwritten(Exception):
    """A fact speaks of an element that nobody wrote."""


def _fact(
    f: Fact, dims: Mapping[str, int], arrays: Mapping[str, Array], known: Mapping[str, Known]
) -> None:
    def load(name: str, index: tuple[int, ...]) -> int:
        if not known[name][index]:
            raise _Unwritten
        return int(arrays[name][index])

    def holds(env: dict[str, int]) -> bool:
        try:
            return bool(evaluate(f.cond, env, load))
        except _Unwritten:
            return True

    for env in _points(f.over, dict(dims), arrays):
        if not holds(env):
            at = ", ".join(f"{a.var} = {env[a.var]}" for a in f.over)
            raise FactViolated(f"the fact '{f.cond}' does not hold at {at}")


def _points(
    over: tuple[GridAxis, ...], env: dict[str, int], arrays: Mapping[str, Array]
) -> Iterator[dict[str, int]]:
    if not over:
        yield env
        return

    def load(name: str, index: tuple[int, ...]) -> int:
        return int(arrays[name][index])

    for v in range(evaluate(over[0].extent, env, load)):
        yield from _points(over[1:], {**env, over[0].var: v}, arrays)
