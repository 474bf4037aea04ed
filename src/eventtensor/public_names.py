"""The names of `et` that bodies use: where the package finds them, and what hints pick from."""

from __future__ import annotations

DTYPES = ("f32", "bf16", "f16", "i32", "i64", "u8", "bool_")
FUNCTIONS = (
    "abs", "argmax", "argmin", "argsort", "ceil", "concat", "cos", "cumprod", "cumsum", "equal",
    "erf", "exp", "exp2", "floor", "full", "gather", "histogram", "iota", "log", "log2", "max",
    "maximum", "min", "minimum", "pow", "range", "reciprocal", "round", "rsqrt", "sigmoid", "sign",
    "sin", "sort", "sqrt", "tanh", "topk", "where", "zeros",
)  # fmt: skip
COMPOSED = (
    "all", "any", "arange", "clip", "concatenate", "dot", "expand_dims", "flip", "full_like",
    "mean", "ones", "ones_like", "outer", "repeat", "split", "square", "stack", "std", "sum", "var",
    "zeros_like",
)  # fmt: skip
BODY_NAMES = frozenset((*DTYPES, *FUNCTIONS, *COMPOSED))
