"""The C++ types of elements, and literals of them."""

from __future__ import annotations

import numpy as np

from ..ir.tensor import DType

STORAGE: dict[DType, str] = {
    DType.f32: "float",
    DType.bf16: "et::bf16",
    DType.f16: "et::f16",
    DType.i32: "int32_t",
    DType.i64: "int64_t",
    DType.u8: "uint8_t",
    DType.bool_: "bool",
}


def ctype(dtype: DType) -> str:
    """C++ type of a tile element."""
    return STORAGE[dtype.tile_dtype]


def literal(value: float | int | bool, dtype: DType) -> str:
    match dtype:
        case DType.bool_:
            return "true" if value else "false"
        case DType.i32:
            return f"int32_t({int(value)})" if value != -(2**31) else "INT32_MIN"
        case DType.i64:
            return f"int64_t({int(value)})" if value != -(2**63) else "INT64_MIN"
        case _:
            return _float_literal(float(np.float32(value)))


def _float_literal(x: float) -> str:
    if np.isnan(x):
        return "NAN"
    if np.isinf(x):
        return "INFINITY" if x > 0 else "-INFINITY"
    text = str(np.float32(x))
    return f"{text if '.' in text or 'e' in text else text + '.0'}f"
