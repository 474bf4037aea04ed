"""Tensor maps: the descriptions of matrices from which bulk copies take boxes.

The driver encodes them when a launch is bound. They are arguments of the launch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ctypes import c_uint, c_uint64, c_void_p
from typing import Any

import numpy as np
import numpy.typing as npt

from ...codegen.cuda.maps import (
    ALIGN,
    BOX_BYTES,
    BYTES,
    COLUMNS,
    RUN,
    MappedTensor,
    PagedTensor,
)
from .driver import call

# Of cuda.h: CU_TENSOR_MAP_DATA_TYPE_UINT16 and UINT64, INTERLEAVE_NONE, SWIZZLE_NONE and 128B,
# L2_PROMOTION_L2_128B and 256B, FLOAT_OOB_FILL_NONE.
_UINT16, _UINT64, _NO_INTERLEAVE, _NO_SWIZZLE, _SWIZZLE_128B = 1, 4, 0, 0, 3
_PROMOTE_128B, _PROMOTE_256B, _ZEROS = 2, 3, 0
_ELEMENT, _WORD = 2, 8  # bytes


def encode_tensor_maps(
    maps: Sequence[MappedTensor | PagedTensor],
    places: Mapping[str, int],
    sizes: Mapping[str, int],
) -> npt.NDArray[Any]:
    """All tensor maps, by the addresses and bytes of tensors, in the layout of the kernel's
    arguments."""
    lines = [(m, columns) for m in maps if isinstance(m, MappedTensor) for columns in COLUMNS]
    pages = [m for m in maps if isinstance(m, PagedTensor)]
    count = len(lines) + len(pages)
    room = np.zeros(BYTES * count + ALIGN, np.uint8)
    begin = -room.ctypes.data % ALIGN
    found = room[begin : begin + BYTES * count]
    to = iter(range(found.ctypes.data, found.ctypes.data + BYTES * count, BYTES))
    for m, columns in lines:
        rows = max(1, sizes[m.tensor] // (m.width * _ELEMENT))  # an empty matrix has no boxes
        _encode(next(to), places[m.tensor], m.width, rows, columns)
    for p in pages:
        _encode_panels(next(to), places[p.tensor], p, max(1, sizes[p.tensor] // p.width))
    return found


def _encode(to: int, address: int, width: int, rows: int, columns: int) -> None:
    call(
        "cuTensorMapEncodeTiled", c_void_p(to), _UINT16, 2, c_void_p(address),
        (c_uint64 * 2)(width, rows), (c_uint64 * 1)(width * _ELEMENT),
        (c_uint * 2)(BOX_BYTES // _ELEMENT, columns), (c_uint * 2)(1, 1),
        _NO_INTERLEAVE, _SWIZZLE_128B, _PROMOTE_128B, _ZEROS,
    )


def _encode_panels(to: int, address: int, m: PagedTensor, panels: int) -> None:
    """Encode runs of a panel, and panels."""
    call(
        "cuTensorMapEncodeTiled", c_void_p(to), _UINT64, 3, c_void_p(address),
        (c_uint64 * 3)(RUN // _WORD, m.width // RUN, panels), (c_uint64 * 2)(RUN, m.width),
        (c_uint * 3)(RUN // _WORD, m.piece // RUN, m.count), (c_uint * 3)(1, 1, 1),
        _NO_INTERLEAVE, _NO_SWIZZLE, _PROMOTE_256B, _ZEROS,
    )
