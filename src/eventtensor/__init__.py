"""The Event Tensor Compiler: tiled programs, derived and proved events, one persistent kernel."""

from .analysis.report import CheckReport
from .compiler import check, compile
from .config import Options
from .errors import EventTensorError
from .explain import explain
from .ir.expr import dim
from .ir.parse import parse_program as parse
from .ir.tensor import DType
from .kernel import Kernel
from .lang.functions import (
    abs,
    argmax,
    concat,
    cumsum,
    equal,
    exp,
    full,
    gather,
    iota,
    log,
    max,
    maximum,
    min,
    minimum,
    range,
    rsqrt,
    sigmoid,
    sqrt,
    tanh,
    topk,
    where,
    zeros,
)
from .lang.program import Program
from .lang.task import task

f32 = DType.f32
bf16 = DType.bf16
f16 = DType.f16
i32 = DType.i32
i64 = DType.i64
u8 = DType.u8
bool_ = DType.bool_

__all__ = [
    "CheckReport",
    "DType",
    "EventTensorError",
    "Kernel",
    "Options",
    "Program",
    "abs",
    "argmax",
    "bf16",
    "bool_",
    "check",
    "compile",
    "concat",
    "cumsum",
    "dim",
    "equal",
    "exp",
    "explain",
    "f16",
    "f32",
    "full",
    "gather",
    "i32",
    "i64",
    "iota",
    "log",
    "max",
    "maximum",
    "min",
    "minimum",
    "parse",
    "range",
    "rsqrt",
    "sigmoid",
    "sqrt",
    "tanh",
    "task",
    "topk",
    "u8",
    "where",
    "zeros",
]
