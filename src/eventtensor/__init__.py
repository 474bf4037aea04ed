"""The Event Tensor Compiler: tiled programs, derived and proved events, one persistent kernel.

Names are imported when they are first used (PEP 562), so that a program which only loads artifacts
needs NumPy and the driver, and neither the analysis nor a compiler.
"""

from importlib import import_module
from sys import modules
from typing import TYPE_CHECKING, Any

from .public_names import COMPOSED, DTYPES, FUNCTIONS

if TYPE_CHECKING:
    from .analysis.check_report import CheckReport
    from .compiler import check, compile
    from .config import Options
    from .errors import EventTensorError
    from .explanation import explain
    from .ir.cpp_body import CppBody
    from .ir.cuda_body import CudaBody, Producer, Scratch
    from .ir.expr import dim
    from .ir.parse import parse_program as parse
    from .ir.tensor import DType
    from .kernel import Kernel
    from .lang.composite_functions import (
        all,
        any,
        arange,
        clip,
        concatenate,
        dot,
        expand_dims,
        flip,
        full_like,
        mean,
        ones,
        ones_like,
        outer,
        repeat,
        split,
        square,
        stack,
        std,
        sum,
        var,
        zeros_like,
    )
    from .lang.program_builder import Program
    from .lang.task import task
    from .lang.tile_functions import (
        abs,
        argmax,
        argmin,
        argsort,
        ceil,
        concat,
        cos,
        cumprod,
        cumsum,
        equal,
        erf,
        exp,
        exp2,
        floor,
        full,
        gather,
        histogram,
        iota,
        log,
        log2,
        max,
        maximum,
        min,
        minimum,
        pow,
        range,
        reciprocal,
        round,
        rsqrt,
        sigmoid,
        sign,
        sin,
        sort,
        sqrt,
        tanh,
        topk,
        where,
        zeros,
    )
    from .llm.engine.llm import LLM
    from .llm.engine.sampling_params import SamplingParams
    from .runtime.artifact_loader import load

    f32 = DType.f32
    bf16 = DType.bf16
    f16 = DType.f16
    i32 = DType.i32
    i64 = DType.i64
    u8 = DType.u8
    bool_ = DType.bool_

__all__ = [
    "LLM",
    "CheckReport",
    "CppBody",
    "CudaBody",
    "DType",
    "EventTensorError",
    "Kernel",
    "Options",
    "Producer",
    "Program",
    "SamplingParams",
    "Scratch",
    "abs",
    "all",
    "any",
    "arange",
    "argmax",
    "argmin",
    "argsort",
    "bf16",
    "bool_",
    "ceil",
    "check",
    "clip",
    "compile",
    "concat",
    "concatenate",
    "cos",
    "cumprod",
    "cumsum",
    "dim",
    "dot",
    "equal",
    "erf",
    "exp",
    "exp2",
    "expand_dims",
    "explain",
    "f16",
    "f32",
    "flip",
    "floor",
    "full",
    "full_like",
    "gather",
    "histogram",
    "i32",
    "i64",
    "iota",
    "load",
    "log",
    "log2",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "ones",
    "ones_like",
    "outer",
    "parse",
    "pow",
    "range",
    "reciprocal",
    "repeat",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sort",
    "split",
    "sqrt",
    "square",
    "stack",
    "std",
    "sum",
    "tanh",
    "task",
    "topk",
    "u8",
    "var",
    "where",
    "zeros",
    "zeros_like",
]

__version__ = "0.1.0"

_HOMES = {
    **dict.fromkeys(COMPOSED, "lang.composite_functions"),
    **dict.fromkeys(FUNCTIONS, "lang.tile_functions"),
    "LLM": "llm.engine.llm",
    "CheckReport": "analysis.check_report",
    "CppBody": "ir.cpp_body",
    "CudaBody": "ir.cuda_body",
    "DType": "ir.tensor",
    "EventTensorError": "errors",
    "Kernel": "kernel",
    "Options": "config",
    "Producer": "ir.cuda_body",
    "Program": "lang.program_builder",
    "SamplingParams": "llm.engine.sampling_params",
    "Scratch": "ir.cuda_body",
    "check": "compiler",
    "compile": "compiler",
    "dim": "ir.expr",
    "explain": "explanation",
    "load": "runtime.artifact_loader",
    "parse": "ir.parse",
    "task": "lang.task",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(_missing(name), name=name, obj=modules[__name__])
    found = _find(name)
    globals()[name] = found
    return found


def _missing(name: str) -> str:
    if name.startswith("_"):
        return f"module {__name__!r} has no attribute {name!r}"
    hint = import_module(".lang.numpy_hints", __name__).hint_for(name, frozenset(__all__), "et")
    return f"module {__name__!r} has no attribute {name!r}" + (f" ({hint})" if hint else "")


def _find(name: str) -> Any:
    if name in DTYPES:
        return getattr(import_module(".ir.tensor", __name__).DType, name)
    home = import_module(f".{_HOMES[name]}", __name__)
    return getattr(home, "parse_program" if name == "parse" else name)


def __dir__() -> list[str]:
    return sorted(__all__)
