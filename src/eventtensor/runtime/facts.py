"""Debug: declared facts about run-time data, checked on the arguments before a launch."""

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


def check_inputs(program: Program, dims: Mapping[str, int], arrays: Mapping[str, Array]) -> None:
    """Facts about tensors whose values are there before the launch."""
    given = {t.name for t in program.tensors if t.role.starts_defined and t.name in arrays}
    for t in program.tensors:
        if t.name in given:
            _bound(t, dims, arrays[t.name])
            _monotone(t, arrays[t.name])
            _distinct(t, arrays[t.name])
    written = {
        r.tensor for p in program.calls for r in (*p.call.accumulates, *p.call.writes)
    }
    for f in program.facts:
        names = {n.tensor for n in loads_of(f.cond, *(a.extent for a in f.over))}
        if names <= given - written:
            _fact(f, dims, arrays)


def _bound(t: Tensor, dims: Mapping[str, int], x: Array) -> None:
    if t.bound is None or x.size == 0:
        return
    lo, hi = (evaluate(b, dims) for b in t.bound)
    bad = np.argwhere((x < lo) | (x > hi))
    if len(bad):
        index = tuple(int(i) for i in bad[0])
        raise BoundViolated(
            f"{t.name}{list(index)} = {x[index]} is outside its bound {lo}..{hi}"
        )


def _monotone(t: Tensor, x: Array) -> None:
    if not t.monotone or x.ndim == 0 or x.shape[-1] < 2:
        return
    bad = np.argwhere(x[..., 1:] < x[..., :-1])
    if len(bad):
        index = [int(i) for i in bad[0]]
        raise FactViolated(f"{t.name} is declared monotone but falls after {t.name}{index}")


def _distinct(t: Tensor, x: Array) -> None:
    if not t.distinct or x.size == 0:
        return
    rest = tuple(k for k in range(x.ndim) if k not in t.distinct)
    count = int(np.prod([x.shape[k] for k in t.distinct], dtype=np.int64))
    rows = np.transpose(x, rest + tuple(t.distinct)).reshape(-1, count)
    for row in rows:
        values, seen = np.unique(row, return_counts=True)
        if len(values) < count:
            raise FactViolated(
                f"{t.name} is declared distinct over axes {t.distinct} but holds "
                f"{values[seen > 1][0]} twice"
            )


def _fact(f: Fact, dims: Mapping[str, int], arrays: Mapping[str, Array]) -> None:
    def load(name: str, index: tuple[int, ...]) -> int:
        return int(arrays[name][index])

    for env in _points(f.over, dict(dims), arrays):
        if not evaluate(f.cond, env, load):
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
