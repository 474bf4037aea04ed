"""The arrays of one run, with a shadow: a bit for each element that says whether it is written.

Arguments are checked. Scratch is poisoned, and in debug outputs are too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import (
    DimOutOfRange,
    DimUnknown,
    MissingArgument,
    NotAnArray,
    OutOfRange,
    OutputNotWritten,
    ReadOnlyOutput,
    UnknownArgument,
    WrongDType,
    WrongShape,
)
from ..ir.allocate import allocate
from ..ir.program import Program
from ..ir.tensor import DType, Role, Tensor
from ..ir.walk import evaluate
from .evaluate import Place
from .footprints import Footprint
from .numbers import Array

# Negative, so that an index computed from it is out of range.
POISON = -0x5A5A5A5B


@dataclass(frozen=True, slots=True)
class ShadowMemory:
    """`written` has no entry for tensors whose elements are all defined from the start. No task
    writes those in `constant`."""

    program: Program
    arrays: dict[str, Array]
    written: dict[str, Array]
    constant: frozenset[str]

    def shape(self, tensor: str) -> tuple[int, ...]:
        return self.arrays[tensor].shape

    def dtype(self, tensor: str) -> DType:
        return self.program.tensor(tensor).dtype

    def first_unwritten(self, f: Footprint) -> tuple[int, ...] | None:
        """An element of the footprint that no task has written, if there is one."""
        bits = self.written.get(f.tensor)
        if bits is None:
            return None
        if f.element is not None:
            return None if bits[f.element] else f.element
        part = bits[f.key()]
        if np.count_nonzero(part) == part.size:
            return None
        position = np.unravel_index(int(np.argmin(part)), part.shape)
        return f.index_at(tuple(int(p) for p in position))

    def check_outputs(self) -> None:
        """Raise if an output that is not partial has unwritten elements."""
        for t in self.program.tensors:
            bits = self.written.get(t.name)
            if t.role is Role.output and not t.partial and bits is not None and not bits.all():
                index = np.unravel_index(int(np.argmin(bits)), bits.shape)
                raise OutputNotWritten(
                    f"no task has written {t.name}{[int(k) for k in index]} of output '{t.name}'",
                    place=t.place)

    def mark(self, f: Footprint, assigned: Array) -> None:
        bits = self.written.get(f.tensor)
        if bits is None:
            return
        if f.element is not None:
            if assigned:
                bits[f.element] = True
        else:
            bits[f.key()] |= assigned.reshape(f.full_shape)[f.inner()]

    def check_index(self, tensor: str, index: tuple[int, ...], place: Place) -> None:
        shape = self.arrays[tensor].shape
        if len(index) == len(shape):
            for i, s in zip(index, shape, strict=True):
                if not 0 <= i < s:
                    break
            else:
                return
        raise OutOfRange(
            f"{place.label} loads {tensor}{list(index)}, outside its shape {list(shape)}",
            place=place.place,
        )


def make_memory(
    program: Program, dims: Mapping[str, int], arrays: Mapping[str, Array], debug: bool = False
) -> ShadowMemory:
    """Check dims and arrays, allocate scratch, and zero tensors that tasks accumulate into. Scratch
    is poisoned, and in debug outputs are too."""
    check_dims(program, dims)
    wanted = {t.name for t in program.tensors if t.role is not Role.scratch}
    for name in arrays:
        if name not in wanted:
            raise UnknownArgument(f"'{name}' is not an argument of program '{program.name}'")
    summed = {r.tensor for p in program.calls for r in p.call.accumulates}
    memory: dict[str, Array] = {}
    written: dict[str, Array] = {}
    for t in program.tensors:
        shape = tuple(evaluate(s, dims) for s in t.shape)
        memory[t.name] = (
            _scratch(t, shape, dims) if t.role is Role.scratch else _given(t, shape, arrays)
        )
        if t.role.starts_defined:
            continue
        if t.name in summed:
            memory[t.name][...] = 0
        else:
            if debug:
                _poison(t, memory[t.name])
            written[t.name] = allocate(f"the record of '{t.name}'", shape, np.bool_, dims)
            written[t.name].fill(False)
    changed = summed | {r.tensor for p in program.calls for r in p.call.writes}
    return ShadowMemory(program, memory, written, frozenset(memory) - changed)


def check_dims(program: Program, dims: Mapping[str, int]) -> None:
    for d in program.dims:
        if d.name not in dims:
            raise DimUnknown(f"no value for dim '{d.name}' of program '{program.name}'")
        value = dims[d.name]
        if value < d.min or (d.max is not None and value > d.max):
            raise DimOutOfRange(f"dim {d.name} = {value} is outside {d.min}..{d.max}")


def _scratch(t: Tensor, shape: tuple[int, ...], dims: Mapping[str, int]) -> Array:
    found = allocate(f"scratch '{t.name}'", shape, t.dtype.numpy, dims)
    _poison(t, found)
    return found


def _poison(t: Tensor, array: Array) -> None:
    fill: Any = np.nan if t.dtype.is_float else POISON if t.dtype is not DType.u8 else 0xA5
    array.fill(fill)


def _given(t: Tensor, shape: tuple[int, ...], arrays: Mapping[str, Array]) -> Array:
    if t.name not in arrays:
        raise MissingArgument(f"no array for {t.role.value} '{t.name}'")
    array = arrays[t.name]
    if not isinstance(array, np.ndarray):
        raise NotAnArray(f"'{t.name}' is a {type(array).__name__}, not a NumPy array")
    if array.dtype != t.dtype.numpy:
        raise WrongDType(f"'{t.name}' has dtype {array.dtype}, declared as {t.dtype}")
    if array.shape != shape:
        raise WrongShape(f"'{t.name}' has shape {list(array.shape)}, declared as {list(shape)}")
    if not t.role.read_only and not array.flags.writeable:
        raise ReadOnlyOutput(f"'{t.name}' is written by the program, but its array is read-only")
    return array
