"""Hints for NumPy names that the tile language lacks: what to write instead, and why.

The tables hold text alone. Errors take their hints from here.
"""

from __future__ import annotations

from difflib import get_close_matches

# By the NumPy name of a function, a method or a module.
HINTS = {
    "allclose": "(et.abs(x - y) <= limit).all()",
    "append": "et.concat([x, y], axis=0)",
    "apply_along_axis": "write the operation with axis=, or loop with et.range",
    "arccos": "tiles have sin, cos, tanh and erf; pass a table through reads= for others",
    "arcsin": "tiles have sin, cos, tanh and erf; pass a table through reads= for others",
    "arctan": "tiles have sin, cos, tanh and erf; pass a table through reads= for others",
    "arctan2": "tiles have sin, cos, tanh and erf; pass a table through reads= for others",
    "argpartition": "et.topk(x, k) gives values and indices of the k largest",
    "array": "et.full, et.iota and et.where make constants; data comes through reads=",
    "asarray": "et.full, et.iota and et.where make constants; data comes through reads=",
    "ascontiguousarray": "tiles have no layout in memory: leave it away",
    "average": "(x * w).sum(axis) / w.sum(axis)",
    "bincount": "et.histogram(index, [1], bins)",
    "bitwise_count": "((x[:, None] >> et.iota(32)[None, :]) & 1).sum(axis=1)",
    "broadcast_to": "x + et.zeros(shape); most operations broadcast by themselves",
    "cbrt": "et.pow(x, 1 / 3) for x of 0 or more",
    "cholesky": "write it over tiles: examples/cholesky.py, examples/newcomer/triangular_solve.py",
    "convolve": "add up shifted slices, as in x[0:n]*w[0] + x[1:n+1]*w[1]",
    "count_nonzero": "(x != 0).sum(axis)",
    "det": "write it over tiles: examples/cholesky.py, examples/newcomer/triangular_solve.py",
    "diag": "et.where(et.iota(n)[:, None] == et.iota(n)[None, :], x, 0.0)",
    "diff": "x[1:] - x[:-1]",
    "einsum": "x @ y for products, x.transpose(..) to bring axes in order",
    "empty": "et.zeros(shape): a tile has no elements that are undefined",
    "expm1": "et.exp(x) - 1.0",
    "eye": "et.where(et.iota(n)[:, None] == et.iota(n)[None, :], 1.0, 0.0)",
    "f64": "there are no f64: use et.f32",
    "fft": "write the butterflies: examples/newcomer/fft.py",
    "fill": "x[:] = value",
    "flat": "x.reshape(-1)",
    "float64": "there are no f64: use et.f32",
    "gelu": "0.5 * x * (1.0 + et.erf(x * 0.70710678))",
    "hstack": "et.concat([x, y], axis=1)",
    "hypot": "et.sqrt(x * x + y * y)",
    "identity": "et.where(et.iota(n)[:, None] == et.iota(n)[None, :], 1.0, 0.0)",
    "inf": "float('inf')",
    "inner": "(x * y).sum(axis=-1)",
    "inv": "write it over tiles: examples/cholesky.py, examples/newcomer/triangular_solve.py",
    "isclose": "et.abs(x - y) <= limit",
    "isfinite": "(x == x) & (et.abs(x) < float('inf'))",
    "isinf": "et.abs(x) == float('inf')",
    "isnan": "x != x",
    "item": "a 0-d integer tile is an index by itself; the value of a tile is not known in a trace",
    "itemsize": "tiles have no layout in memory",
    "linalg": "write it over tiles: examples/cholesky.py, examples/newcomer/triangular_solve.py",
    "linspace": "start + et.iota(n).cast(et.f32) * step",
    "log10": "et.log2(x) * 0.30103",
    "log1p": "et.log(1.0 + x)",
    "logaddexp": "m + et.log(et.exp(x - m) + et.exp(y - m)) with m = et.maximum(x, y)",
    "logsumexp": "m + et.log(et.exp(x - m).sum(axis, keepdims=True)) with m = x.max(axis, "
    "keepdims=True)",
    "median": "et.sort(x, axis) and pick the middle",
    "meshgrid": "et.iota(m)[:, None] and et.iota(n)[None, :] broadcast against each other",
    "moveaxis": "x.transpose(..) with all axes in their new order",
    "nan": "float('nan')",
    "nan_to_num": "et.where(x == x, x, 0.0)",
    "nbytes": "tiles have no layout in memory",
    "newaxis": "None adds an axis: x[:, None]",
    "nonzero": "how many there are is not known in a trace: et.where keeps the shape, et.cumsum "
    "of the condition gives places",
    "norm": "et.sqrt((x * x).sum(axis))",
    "pad": "region.padded(lo, hi, value) in reads=, or et.concat with et.zeros",
    "percentile": "et.sort(x, axis) and pick",
    "pi": "math.pi of Python",
    "prod": "x.cumprod(axis)[..., -1]",
    "ptp": "x.max(axis) - x.min(axis)",
    "put": "x[i] = value assigns a sub-tile",
    "random": "pass random numbers through reads=: a launch has the same bits every time",
    "relu": "et.maximum(x, 0.0)",
    "resize": "x.reshape(..), or et.concat with et.zeros",
    "rint": "et.round(x)",
    "roll": "et.concat([x[k:], x[:k]], axis=0)",
    "searchsorted": "(edges[None, :] <= x[:, None]).sum(axis=1)",
    "select": "et.where(c, x, et.where(d, y, z))",
    "silu": "x * et.sigmoid(x)",
    "size": "the product of x.shape",
    "softmax": "e / e.sum(axis, keepdims=True) with e = et.exp(x - x.max(axis, keepdims=True))",
    "solve": "write it over tiles: examples/cholesky.py, examples/newcomer/triangular_solve.py",
    "take": "et.gather(x, index, axis)",
    "take_along_axis": "et.gather(x, index) for a tile of one row; for rows of k elements "
    "et.where(index[:, :, None] == et.iota(k), x[:, None, :], 0).sum(axis=-1)",
    "tan": "et.sin(x) / et.cos(x)",
    "tensordot": "x.reshape(..) @ y.reshape(..)",
    "tile": "et.concat([x] * n, axis=0)",
    "tobytes": "tiles have no layout in memory",
    "tolist": "the values of a tile are not known in a trace: use et.where and et.range",
    "trace": "et.where(et.iota(n)[:, None] == et.iota(n)[None, :], x, 0.0).sum()",
    "tril": "et.where(et.iota(n)[:, None] >= et.iota(n)[None, :], x, 0.0)",
    "triu": "et.where(et.iota(n)[:, None] <= et.iota(n)[None, :], x, 0.0)",
    "trunc": "x.cast(et.i32).cast(et.f32)",
    "unique": "how many there are is not known in a trace: et.histogram counts",
    "unpackbits": "(x[:, None] >> et.iota(8)[None, :]) & 1, the lowest bit first",
    "vdot": "(x * y).sum()",
    "vectorize": "operations are element by element already",
    "view": "x.cast(dtype) converts values; bits are not looked at in another type",
    "vstack": "et.concat([x, y], axis=0)",
}

# NumPy functions that Python or `et` has under another name.
EQUIVALENTS = {
    "absolute": "et.abs(x)", "add": "x + y", "bitwise_and": "x & y", "bitwise_or": "x | y",
    "bitwise_xor": "x ^ y", "divide": "x / y", "equal": "x == y",
    "float16": "x.cast(et.f16)", "float32": "x.cast(et.f32)", "floor_divide": "x // y",
    "greater": "x > y", "greater_equal": "x >= y",
    "int32": "x.cast(et.i32)", "int64": "x.cast(et.i64)", "invert": "~x", "left_shift": "x << y",
    "less": "x < y", "less_equal": "x <= y", "logical_and": "x & y", "logical_not": "~x",
    "logical_or": "x | y", "logical_xor": "x != y", "matmul": "x @ y", "mod": "x % y",
    "multiply": "x * y", "negative": "-x", "not_equal": "x != y", "power": "x ** y",
    "remainder": "x % y", "reshape": "x.reshape(..)", "right_shift": "x >> y",
    "subtract": "x - y", "transpose": "x.transpose(..)", "true_divide": "x / y",
    "uint8": "x.cast(et.u8)",
}  # fmt: skip


# Names below this similarity are different words.
_MIN_SIMILARITY = 0.75


def hint_for(
    name: str, known: frozenset[str], owner: str, others: frozenset[str] = frozenset()
) -> str | None:
    """What to write instead of `owner.name`. `known` are the names of the owner. `others` are those
    of tiles if the owner is `et`, and those of `et` if the owner is a tile."""
    found = EQUIVALENTS.get(name) or HINTS.get(name)
    if found is not None:
        return f"instead of {name}: {found}"
    if name in others:
        return f"use x.{name}(..)" if owner == "et" else f"use et.{name}(x)"
    close = get_close_matches(name, sorted(known), n=1, cutoff=_MIN_SIMILARITY)
    return f"{owner}.{close[0]} is near by name" if close else None


def hint_for_numpy(name: str, functions: frozenset[str], methods: frozenset[str]) -> str:
    """What to write instead of `np.name(x)` in a body."""
    if name in functions:
        return f"use et.{name}: a body is traced, so NumPy does not see its values"
    if name in methods:
        return f"use x.{name}(..): a body is traced, so NumPy does not see its values"
    return hint_for(name, functions, "et") or "a body is traced: use the functions of et on tiles"
