"""Index expressions in C++ have the value that ir.walk.evaluate gives, for negative numbers too."""

from __future__ import annotations

import ctypes
import random

import numpy as np

import eventtensor as et
from eventtensor.config import environment
from eventtensor.ir.expr import (
    Const,
    Node,
    Var,
    compare,
    equal,
    floordiv,
    load,
    maximum,
    minimum,
    mod,
    mul,
    select,
    wrap,
)
from eventtensor.ir.program import Program
from eventtensor.ir.tensor import Role, Tensor
from eventtensor.ir.walk import evaluate
from eventtensor.kernel_ir.names import cpp_name
from eventtensor.render.index_text import ExprWriter
from eventtensor.runtime.cpp_build import build_library

N = et.dim("n", max=100)
DATA = np.arange(-6, 6).reshape(3, 4).astype(np.int32)
PROGRAM = Program(
    "p",
    (Tensor("data", Role.input, (Const(3), Const(4)), et.i32),
     Tensor("x", Role.input, (N,), et.f32)),
    (), (), (),
)


def random_expr(rng: random.Random, depth: int) -> Node:
    if depth == 0:
        return rng.choice([N, Var("i"), Var("int"), wrap(rng.randint(-9, 9))])
    a, b = random_expr(rng, depth - 1), random_expr(rng, depth - 1)
    k = rng.randint(1, 7)
    made = [
        a + b, a - b, wrap(a * rng.randint(-4, 4)), floordiv(a, k), mod(a, k), minimum(a, b),
        maximum(a, b), select(compare("<=", a, b), a, b), equal(a, b), mul(a, b),
        load("data", (mod(a, 3), mod(b, 4))),
    ]
    return wrap(rng.choice(made))


def test_random_expressions_have_the_same_value() -> None:
    rng = random.Random(0)
    exprs = [random_expr(rng, rng.randint(1, 4)) for _ in range(300)]
    write = ExprWriter(PROGRAM)
    cases = "\n".join(f"    case {k}: return {write(e)};" for k, e in enumerate(exprs))
    source = f"""#include <algorithm>
#include "numerics.h"
struct Args {{ int64_t n; const int32_t* data; }};
extern "C" int64_t value(int which, int64_t n, const int32_t* data, int64_t i, int64_t int_) {{
  const Args args{{n, data}};
  switch (which) {{
{cases}
  }}
  return 0;
}}
"""
    lib = ctypes.CDLL(str(build_library(source, "expressions", environment()).path))
    lib.value.restype = ctypes.c_int64
    lib.value.argtypes = [ctypes.c_int, *[ctypes.c_int64] * 4]
    for k, e in enumerate(exprs):
        for n, i, j in ((1, 0, 0), (7, -5, 3), (100, 13, -8)):
            expected = evaluate(e, {"n": n, "i": i, "int": j}, lambda _, at: int(DATA[at]))
            assert lib.value(k, n, DATA.ctypes.data, i, j) == expected, f"{e} at {n}, {i}, {j}"


def test_names_stay_apart() -> None:
    names = ["int", "int_", "int__", "x", "x_", "worker", "v3", "e12", "%3", "task_f", "c0"]
    assert len({cpp_name(n) for n in names if n != "%3"}) == len(names) - 1
    assert cpp_name("%3") == "v3" and cpp_name("v3") == "v3_" and cpp_name("row_sum") == "row_sum"
