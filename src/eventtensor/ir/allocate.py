"""Memory for tensors: what the machine does not have is an error that names tensor and dims."""

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
    """An array whose elements hold anything."""
    try:
        return np.empty(shape, dtype)
    except (MemoryError, ValueError, OverflowError):  # too much for the machine, or for NumPy
        size = prod(shape) * np.dtype(dtype).itemsize
        raise OutOfMemory(
            f"{what} takes {size} bytes, which memory cannot hold{at_dims(dims)}") from None


def at_dims(dims: Mapping[str, int]) -> str:
    """Dims as messages end with them."""
    return f"   ({', '.join(f'{k} = {v}' for k, v in sorted(dims.items()))})" if dims else ""
