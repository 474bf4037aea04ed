"""Tensor maps, encoded by the driver: what bulk copies must know of matrices that they take boxes
of. They are arguments of a launch, made when it is bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ctypes import c_uint, c_uint64, c_void_p
from typing import Any

import numpy as np
import numpy.typing as npt

from ...codegen.cuda.maps import ALIGN, BOX_BYTES, BYTES, COLUMNS, MappedTensor
from .driver import call

# Of cuda.h: CU_TENSOR_MAP_DATA_TYPE_UINT16, INTERLEAVE_NONE, SWIZZLE_128B, L2_PROMOTION_L2_128B,
# FLOAT_OOB_FILL_NONE.
_UINT16, _NO_INTERLEAVE, _SWIZZLE_128B, _PROMOTE_128B, _ZEROS = 1, 0, 3, 2, 0
_ELEMENT = 2  # bytes


def encoded(
    maps: Sequence[MappedTensor], places: Mapping[str, int], sizes: Mapping[str, int]
) -> npt.NDArray[Any]:
    """All of them, by the addresses of tensors and their bytes, as the kernel takes them."""
    room = np.zeros(BYTES * len(COLUMNS) * len(maps) + ALIGN, np.uint8)
    begin = -room.ctypes.data % ALIGN
    found = room[begin : begin + BYTES * len(COLUMNS) * len(maps)]
    boxes = [(m, columns) for m in maps for columns in COLUMNS]
    for k, (m, columns) in enumerate(boxes):
        rows = max(1, sizes[m.tensor] // (m.width * _ELEMENT))  # an empty one has no boxes
        _encode(found.ctypes.data + k * BYTES, places[m.tensor], m.width, rows, columns)
    return found


def _encode(to: int, address: int, width: int, rows: int, columns: int) -> None:
    call(
        "cuTensorMapEncodeTiled", c_void_p(to), _UINT16, 2, c_void_p(address),
        (c_uint64 * 2)(width, rows), (c_uint64 * 1)(width * _ELEMENT),
        (c_uint * 2)(BOX_BYTES // _ELEMENT, columns), (c_uint * 2)(1, 1),
        _NO_INTERLEAVE, _SWIZZLE_128B, _PROMOTE_128B, _ZEROS,
    )
