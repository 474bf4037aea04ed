"""Where temporaries lie is known when a kernel is compiled: in shared memory, if all that a task
takes always fits there; a task that may need more goes on in device memory, and no other looks."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import eventtensor as et
from eventtensor.codegen.cuda.kernel import generate
from eventtensor.targets.h200 import H200
from tests.backend.test_cuda_emulated import arrays_of, assert_close, plan_of
from tests.support.backends import run_direct
from tests.support.emulated import emulated_kernel

COLUMNS = 256


@et.task
def weigh(x, y):
    """A tile that is stored, since it is used twice."""
    v = et.exp(x)
    y[:] = v / v.sum(axis=1, keepdims=True)


def weighed(rows: int | None, n: int = 4) -> et.Program:
    """Tasks of eight rows, then some of so many, or of a number that a launch says."""
    p = et.Program("weighed")
    rows = rows or et.dim("rows")
    x, y = p.input("x", (n, rows, COLUMNS), et.f32), p.output("y", (n, rows, COLUMNS), et.f32)
    few, z = p.input("few", (n, 8, COLUMNS), et.f32), p.output("z", (n, 8, COLUMNS), et.f32)
    p.call(weigh, name="small", grid=(n,), reads=lambda i: few[i, :, :],
           writes=lambda i: z[i, :, :])
    p.call(weigh, name="large", grid=(n,), reads=lambda i: x[i, :, :], writes=lambda i: y[i, :, :])
    return p


def takes(text: str, call: str) -> set[str]:
    body = text[text.index(f" body_{call}(") : text.index(f" task_{call}(")]
    return set(re.findall(r"arena\.take<([^>]*)>", body))


def test_tasks_that_fit_do_not_look_for_device_memory() -> None:
    text = generate(plan_of(weighed(16))).text
    assert "#define ET_FAR 0" in text and "@" not in text
    assert takes(text, "small") == takes(text, "large") == {"float"}


@pytest.mark.parametrize("rows", [512, None])
def test_only_a_task_that_may_not_fit_does(rows: int | None) -> None:
    text = generate(plan_of(weighed(rows))).text
    assert "#define ET_FAR 0" in text
    assert takes(text, "small") == {"float"} and takes(text, "large") == {"float, true"}


def test_the_memory_that_a_gpu_has_decides() -> None:
    plan = plan_of(weighed(32), stream=False)
    small = replace(H200, capabilities=replace(H200.capabilities, shared_bytes=24 * 1024))
    assert takes(generate(plan).text, "large") == {"float"}
    assert takes(generate(plan, small).text, "large") == {"float, true"}


@pytest.mark.parametrize("rows", [16, 320])
def test_results_are_the_same_near_and_far(rows: int) -> None:
    plan = plan_of(weighed(None, 3))
    with emulated_kernel(plan, 2) as kernel:
        got = arrays_of(plan, {"rows": rows}, rows)
        wanted = run_direct(plan.program, {"rows": rows}, got)
        kernel.launch({"rows": rows}, got)
        assert_close(got, wanted, f"{rows} rows")


@et.task(cuda=et.CudaBody("y.data[0] = room[0] = x.data[0];",
                          scratch=(et.Scratch("room", et.f32, 65536),)))
def by_hand(x, y):
    y[:] = x


def test_a_text_by_hand_that_takes_more_goes_on_in_device_memory() -> None:
    p = weighed(16)
    a, b = p.input("a", (4, 1), et.f32), p.output("b", (4, 1), et.f32)
    p.call(by_hand, grid=(4,), reads=lambda i: a[i, :], writes=lambda i: b[i, :])
    text = generate(plan_of(p)).text
    hand = text[text.index(" hand_by_hand(") : text.index(" body_by_hand(")]
    assert "arena.take<float, true>(65536)" in hand and takes(text, "large") == {"float"}


@et.task
def multiply(x, w, y):
    v = et.exp(x)
    y[:] = (x @ w) * v.sum(axis=1, keepdims=True) + v


def test_a_product_that_takes_room_by_itself_says_for_all() -> None:
    """Of 16-bit numbers: device/cuda/ops/matmul.cuh folds through what it takes."""
    p = weighed(16)
    n = et.dim("n")
    x, w = p.input("a", (n, 64), et.bf16), p.input("w", (64, 64), et.bf16)
    y = p.output("b", (n, 64), et.f32)
    p.call(multiply, grid=(), reads=lambda: (x[:, :], w[:, :]), writes=lambda: y[:, :])
    text = generate(plan_of(p)).text
    assert "#define ET_FAR 1" in text
    assert takes(text, "large") == {"float, false"} and takes(text, "multiply") == {"float"}


@et.task
def double(x, y):
    y[:] = (x + x).cast(et.bf16)


@et.task
def column(w, x, z, y):
    v = et.exp(z)
    y[:] = (w @ x) * (v / v.sum()).sum()


def test_a_column_that_lies_near_takes_no_more_room() -> None:
    """Of a product with pages: a stride across means nothing for one column."""
    k = 4096
    p = et.Program("column")
    a, h, z = p.input("a", (k, 1), et.bf16), p.scratch("h", (k, 1), et.bf16), \
        p.input("z", (k,), et.f32)
    w, y = p.weight("w", (64, k), et.bf16), p.output("y", (64, 1), et.f32)
    p.call(double, grid=(), reads=lambda: a[:, :], writes=lambda: h[:, :])
    p.call(column, grid=(2,), reads=lambda i: (w[i * 32 : i * 32 + 32, :], h[:, :], z[:]),
           writes=lambda i: y[i * 32 : i * 32 + 32, :])
    plan = plan_of(p)
    assert takes(generate(plan).text, "column") == {"et::bf16", "float"}
    with emulated_kernel(plan, 1) as kernel:
        got = arrays_of(plan, {}, 1)
        wanted = run_direct(plan.program, {}, got)
        kernel.launch({}, got)
        assert_close(got, wanted, "column")


def numbers(n: int | None) -> str:
    """How a kernel finds the coordinates of a tile of a grid of (n, 12)."""
    p = et.Program("numbers")
    n = n or et.dim("n")
    x, y = p.input("x", (n, 12, 4), et.f32), p.output("y", (n, 12, 4), et.f32)

    @et.task
    def twice(x, y):
        y[:] = x + x

    p.call(twice, grid=(n, 12), reads=lambda i, k: x[i, k, :], writes=lambda i, k: y[i, k, :])
    return generate(plan_of(p)).text


def test_numbers_of_tiles_are_divided_short_where_they_are_small() -> None:
    short, long = "const int64_t i = uint32_t(t0) / 12;", "const int64_t i = t0 / 12;"
    assert short in numbers(1000) and long not in numbers(1000)
    assert long in numbers(2**28) and long in numbers(None)
