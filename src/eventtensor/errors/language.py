"""ET0xx, the language, and ET1xx, tile bodies."""

from __future__ import annotations

from .base import EventTensorError

# ---- ET0xx: the language -------------------------------------------------------------------


class BadDim(EventTensorError):
    code, title = "ET001", "a dim with a bad name or range"
    default_hint = "use et.dim('n', min=1, max=4096) with 0 <= min <= max"


class NonAffine(EventTensorError):
    code, title = "ET002", "an index expression that is not affine"
    default_hint = "multiply by constants; // and % take positive constants"


class BadName(EventTensorError):
    code, title = "ET003", "a name that is taken or not an identifier"
    default_hint = "names of tensors, dims, loops, events and calls are unique within a program"


class BadTensor(EventTensorError):
    code, title = "ET004", "a tensor declared with a bad shape, dtype or fact"
    default_hint = "shapes are tuples of ints and dim expressions; dtypes are et.f32, et.bf16, .."


class BadRegion(EventTensorError):
    code, title = "ET005", "a region that does not fit its tensor"
    default_hint = "give one index or slice for each axis, as in a[i*32:i*32+32, j]"


class BadGrid(EventTensorError):
    code, title = "ET006", "a grid or loop extent that cannot be used"
    default_hint = "an extent is an int, a dim expression, or a lambda of the earlier coordinates"


class BadCall(EventTensorError):
    code, title = "ET007", "a call whose arguments do not fit together"
    default_hint = "region lambdas take the tile coordinates; every tensor is of this program"


class BadRole(EventTensorError):
    code, title = "ET008", "a tensor used against its role"
    default_hint = "input and weight are never written; accumulate into scratch, output or state"


class BadEvent(EventTensorError):
    code, title = "ET009", "an event tensor declared or used wrongly"
    default_hint = "declare with p.events(name, shape, count=), use as E[i] in waits= or notifies="


class BadFact(EventTensorError):
    code, title = "ET010", "a fact that cannot be stated"
    default_hint = "p.fact(lambda e: indptr[e] <= indptr[e + 1], over=(experts,))"


class BadText(EventTensorError):
    code, title = "ET011", "program text that does not parse"
    default_hint = "start from str(program); every line of it parses back"


class OrderedDataAccumulate(EventTensorError):
    code, title = "ET012", "ordered accumulation over a data-dependent region"
    default_hint = "pass unordered=True, or write a row per (token, slot) and combine them in order"


# ---- ET1xx: tile bodies --------------------------------------------------------------------


class BadBody(EventTensorError):
    code, title = "ET100", "a task body whose signature does not fit its call"
    default_hint = "arguments: reads, accumulates, writes, in order; coordinates are keyword-only"


class NotTraceable(EventTensorError):
    code, title = "ET101", "Python in a task body that cannot be traced"
    default_hint = "use et.where for data-dependent choices and et.range for run-time loops"


class BadShape(EventTensorError):
    code, title = "ET102", "tile shapes that do not fit"
    default_hint = "axes must have provably equal extents, or be exactly 1 to broadcast"


class BadDType(EventTensorError):
    code, title = "ET103", "tile dtypes that do not fit"
    default_hint = "there is no implicit mixing: use x.cast(et.f32)"


class LoopEscape(EventTensorError):
    code, title = "ET104", "a value made inside an et.range loop is used after it"
    default_hint = "create the tile before the loop and assign into it: acc[:] = acc + x"


class NothingWritten(EventTensorError):
    code, title = "ET105", "a task body that never assigns one of its outputs"
    default_hint = "assign with out[:] = value; accumulate with acc[:] += value"


class OpWithoutEntry(EventTensorError):
    code, title = "ET106", "an op of the tile language that a part of the compiler does not know"
    default_hint = (
        "each op of ir/ops.py needs a handler in every table (see docs/design/semantics.md)"
    )


class BadCudaBody(EventTensorError):
    code, title = "ET107", "a custom CUDA body that does not do what it declares"
    default_hint = "et.CudaBody(source, waits_inside=, prefetches_next_tile=, scratch=, producer=)"


class UnknownName(NotTraceable):
    code, title = "ET110", "a name of NumPy that tiles or eventtensor do not have"
    default_hint = "the guide lists the operations of task bodies"
