"""Allocates memory for tensors. Too little memory is an error with the tensor and the dims."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import OutOfMemory

Array = npt.NDArray[Any]


def allocate(
    what: str, shape: tuple[int, ...], dtype: npt.DTypeLike, dims: Mapping[str, int]
) -> Array:
    """An array with undefined elements."""
    try:
        return np.empty(shape, dtype)
    except (MemoryError, ValueError, OverflowError):  # more than the machine or NumPy has
        size = prod(shape) * np.dtype(dtype).itemsize
        raise OutOfMemory(
            f"{what} takes {size} bytes, which memory cannot hold{at_dims(dims)}"
        ) from None


def at_dims(dims: Mapping[str, int]) -> str:
    """The dims as the end of a message."""
    return f"   ({', '.join(f'{k} = {v}' for k, v in sorted(dims.items()))})" if dims else ""
