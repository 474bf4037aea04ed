"""Binds the arguments of a launch: arrays of any library become checked NumPy arrays, and dims.

Nothing is copied. Every wrong argument is an error here, before the launch.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..errors import (
    DimConflict,
    DimOutOfRange,
    DimUnknown,
    MisalignedElements,
    MissingArgument,
    NotAnArray,
    NotContiguous,
    OverlappingArguments,
    ReadOnlyOutput,
    UnknownArgument,
    WrongDType,
    WrongRank,
    WrongShape,
)
from ..ir.expr import Dim, Node, Sum
from ..ir.tensor import DType, Role, Tensor
from ..ir.walk import dims_of, evaluate

Array = npt.NDArray[Any]
_CPU = 1  # the number of DLPack


class Signature(Protocol):
    """The part of an interface that arguments are matched with."""

    @property
    def name(self) -> str: ...

    @property
    def dims(self) -> tuple[Dim, ...]: ...

    @property
    def tensors(self) -> tuple[Tensor, ...]: ...

    def check_sizes(self, dims: Mapping[str, int]) -> None: ...


def bind(
    program: Signature, arguments: Mapping[str, object]
) -> tuple[dict[str, int], dict[str, Array]]:
    """The dims of a launch, and its tensors except scratch, by name. Arguments are tensors, and
    integers for dims that no shape gives."""
    tensors = [t for t in program.tensors if t.role is not Role.scratch]
    _check_names(program, tensors, arguments)
    arrays = {t.name: _checked(t, as_numpy(t, arguments[t.name])) for t in tensors}
    dims = _solve(program, tensors, arrays, _given_dims(program, arguments))
    for t in tensors:
        shape = tuple(evaluate(s, dims) for s in t.shape)
        if shape != arrays[t.name].shape:
            at = ", ".join(f"{d.name} = {dims[d.name]}" for d in _dims(t))
            declared = f"{_shape_text(t)} is {shape} with {at}" if at else f"is declared as {shape}"
            raise WrongShape(
                f"argument '{t.name}' has shape {arrays[t.name].shape}, but {declared}")
    _check_overlap(tensors, arrays)
    program.check_sizes(dims)
    return dims, arrays


def _dims(t: Tensor) -> list[Dim]:
    return sorted(dims_of(*t.shape), key=lambda d: d.name)


def _shape_text(t: Tensor) -> str:
    return f"({', '.join(str(s) for s in t.shape)}{',' if len(t.shape) == 1 else ''})"


# ---- single arguments ----------------------------------------------------------------------


def _check_names(
    program: Signature, tensors: list[Tensor], arguments: Mapping[str, object]
) -> None:
    known = {t.name for t in tensors} | {d.name for d in program.dims}
    for name in arguments:
        if name not in known:
            raise UnknownArgument(
                f"'{name}' is no argument of '{program.name}', which takes "
                f"{', '.join(t.name for t in tensors)}"
            )
    for t in tensors:
        if t.name not in arguments:
            raise MissingArgument(f"'{program.name}' needs {t.role.value} '{t.name}'")


def as_numpy(t: Tensor, x: object) -> Array:
    """A NumPy view of an array of any library; the memory is shared."""
    if isinstance(x, np.ma.MaskedArray):
        raise NotAnArray(f"argument '{t.name}' is a masked array, whose mask would be lost",
                         hint="pass x.filled(value), or x.data")
    if isinstance(x, np.ndarray):
        return x
    if isinstance(x, type) or not _speaks_dlpack(x):
        raise NotAnArray(f"argument '{t.name}' is a {type(x).__name__}, not an array")
    try:
        device = x.__dlpack_device__()[0]  # type: ignore[attr-defined]
    except Exception as e:  # whatever a library raises for memory that it cannot show
        raise NotAnArray(f"argument '{t.name}' does not say where its memory is: {e}") from e
    if device != _CPU:
        raise NotAnArray(
            f"argument '{t.name}' is not in CPU memory", hint="move it with x.cpu(), or compile "
            "for the device it is on"
        )
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return _from_torch(torch, x)
    try:
        return np.from_dlpack(x)  # type: ignore[arg-type]
    except Exception as e:  # the same
        raise NotAnArray(
            f"argument '{t.name}' cannot be read through DLPack: {e}",
            hint="NumPy does not know bf16 through DLPack; pass an ml_dtypes.bfloat16 array",
        ) from e


def _speaks_dlpack(x: object) -> bool:
    return all(hasattr(type(x), name) for name in ("__dlpack__", "__dlpack_device__"))


def _from_torch(torch: Any, x: Any) -> Array:
    """Torch's own bridge keeps the memory writable and, through int16, passes bf16 on."""
    plain = x.detach()
    if plain.dtype == torch.bfloat16:
        found: Array = plain.view(torch.int16).numpy()
        return found.view(DType.bf16.numpy)
    return np.asarray(plain.numpy())


def _checked(t: Tensor, x: Array) -> Array:
    if x.dtype != t.dtype.numpy:
        raise WrongDType(f"argument '{t.name}' is {x.dtype}, but the tensor is {t.dtype}")
    if x.ndim != len(t.shape):
        raise WrongRank(
            f"argument '{t.name}' has {x.ndim} axes, but {_shape_text(t)} has {len(t.shape)}"
        )
    if not x.flags.aligned:
        raise MisalignedElements(f"argument '{t.name}' begins at {x.ctypes.data:#x}, which is not "
                                 f"aligned to the {x.dtype.itemsize} bytes of {t.dtype}")
    if not x.flags.c_contiguous:
        raise NotContiguous(f"argument '{t.name}' has strides {x.strides} for shape {x.shape}")
    if not t.role.read_only and not x.flags.writeable:
        raise ReadOnlyOutput(f"{t.role.value} '{t.name}' is a read-only array")
    return x


def _check_overlap(tensors: list[Tensor], arrays: Mapping[str, Array]) -> None:
    spans = sorted(
        (arrays[t.name].ctypes.data, arrays[t.name].ctypes.data + arrays[t.name].nbytes, t.name, t)
        for t in tensors if arrays[t.name].nbytes
    )
    open_: list[tuple[int, int, str, Tensor]] = []
    for span in spans:
        open_ = [o for o in open_ if o[1] > span[0]]
        for other in open_:
            if not (other[3].role.read_only and span[3].role.read_only):
                raise OverlappingArguments(
                    f"arguments '{other[2]}' and '{span[2]}' share memory, and one is written"
                )
        open_.append(span)


# ---- dims ----------------------------------------------------------------------------------


def _given_dims(program: Signature, arguments: Mapping[str, object]) -> dict[str, tuple[int, str]]:
    found: dict[str, tuple[int, str]] = {}
    for d in program.dims:
        if d.name in arguments:
            value = arguments[d.name]
            if isinstance(value, bool) or not isinstance(value, int | np.integer):
                raise DimOutOfRange(f"dim {d.name} is {value!r}, not an int")
            found[d.name] = (int(value), "the argument of its name")
    return found


def _solve(
    program: Signature,
    tensors: list[Tensor],
    arrays: Mapping[str, Array],
    known: dict[str, tuple[int, str]],
) -> dict[str, int]:
    """Dims from shapes: an axis that is affine in one unknown dim gives it."""
    axes = [
        (s, arrays[t.name].shape[k], t.name) for t in tensors for k, s in enumerate(t.shape)
    ]
    _compare_plain(axes, known)
    moved = True
    while moved:
        moved = False
        for e, size, name in axes:
            found = _solve_axis(e, size, {k: v for k, (v, _) in known.items()}, name)
            if found is not None:
                known[found[0]] = (found[1], f"'{name}'")
                moved = True
    dims = {}
    for d in program.dims:
        if d.name not in known:
            raise DimUnknown(f"no argument's shape gives dim {d.name}")
        value = known[d.name][0]
        if value < d.min or (d.max is not None and value > d.max):
            top = "" if d.max is None else d.max
            raise DimOutOfRange(
                f"dim {d.name} is {value} (from {known[d.name][1]}), outside {d.min}..{top}"
            )
        dims[d.name] = value
    return dims


def _compare_plain(
    axes: list[tuple[Node, int, str]], known: dict[str, tuple[int, str]]
) -> None:
    """Axes that are a dim by itself: two that differ are told apart by name."""
    for e, size, name in axes:
        if not isinstance(e, Dim):
            continue
        value, source = known.setdefault(e.name, (size, f"'{name}'"))
        if value != size:
            raise DimConflict(
                f"dim {e.name} is {value} by {source} but {size} by the shape of '{name}'"
            )


def _solve_axis(
    e: Node, size: int, known: Mapping[str, int], name: str
) -> tuple[str, int] | None:
    """The one unknown dim of an affine axis, if there is exactly one."""
    if not isinstance(e, Sum):
        return None
    rest = size - e.const
    open_: tuple[Dim, int] | None = None
    for t, c in e.terms:
        if isinstance(t, Dim) and t.name not in known:
            if open_ is not None:
                return None
            open_ = (t, c)
        elif dims_of(t) <= {d for d in dims_of(t) if d.name in known}:
            rest -= c * evaluate(t, known)
        else:
            return None
    if open_ is None:
        return None
    if rest % open_[1]:
        raise WrongShape(f"argument '{name}' has an axis of {size}, which no '{e}' gives")
    return open_[0].name, rest // open_[1]
