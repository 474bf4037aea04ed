"""Checks declared facts of run-time data in debug builds: of arguments before a launch, and of
computed data after it.

Elements that still have the poison of a debug launch are unwritten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import OutputNotWritten
from ..ir.data_facts import ProgramData, broken_facts
from ..ir.program import Program, has_data_extent
from ..ir.tensor import Role, Tensor, is_data_dependent

Array = npt.NDArray[Any]
Known = npt.NDArray[np.bool_]


def check_inputs(program: Program, dims: Mapping[str, int], arrays: Mapping[str, Array]) -> None:
    """Check tensors that are defined before the launch and do not change."""
    whole = _defined_tensors(program)
    given = {n: x for n, x in arrays.items() if n in whole}
    _raise(ProgramData(program, dims, given, {}), set(given), whole - _written_tensors(program))


def check_computed(program: Program, dims: Mapping[str, int], arrays: Mapping[str, Array]) -> None:
    """Check tensors that tasks wrote, as the launch left them."""
    whole = _defined_tensors(program)
    known = {n: ~is_poison(x) for n, x in arrays.items() if n not in whole}
    _raise(ProgramData(program, dims, arrays, known), _written_tensors(program), set(arrays))
    for t in program.tensors:
        if t.name in arrays and t.dtype.is_float and _is_written_by_data(program, t):
            _check_written(t, known[t.name])


def _is_written_by_data(program: Program, t: Tensor) -> bool:
    """True if run-time data decides whether the whole output is written."""
    if t.role is not Role.output or t.partial:
        return False
    calls = [p.call for p in program.calls]
    if any(r.tensor == t.name for c in calls for r in c.accumulates):
        return False
    return any(r.tensor == t.name and (has_data_extent(c) or is_data_dependent(r))
               for c in calls for r in c.writes)


def _check_written(t: Tensor, known: Known) -> None:
    if not known.all():
        index = np.unravel_index(int(np.argmin(known)), known.shape)
        raise OutputNotWritten(
            f"no task has written {t.name}{[int(k) for k in index]} of output '{t.name}'",
            place=t.place)


def is_poison(x: Array) -> Known:
    """The elements with all bits set: NaN in every float format, -1 or 255 in integers."""
    bytes_ = np.ascontiguousarray(x).view(np.uint8).reshape(*x.shape, x.dtype.itemsize)
    found: Known = (bytes_ == 0xFF).all(axis=-1)
    return found


def _defined_tensors(program: Program) -> set[str]:
    return {t.name for t in program.tensors if t.role.starts_defined}


def _written_tensors(program: Program) -> set[str]:
    return {r.tensor for p in program.calls for r in (*p.call.accumulates, *p.call.writes)}


def _raise(data: ProgramData, names: set[str], final: set[str]) -> None:
    for found in broken_facts(data, names, final):
        raise found.error(found.what, place=found.place)
