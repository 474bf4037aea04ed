"""Products of packed weights with few and with many columns in one kernel, against float64."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random

import numpy as np
import pytest

import eventtensor as et
from eventtensor.codegen.cuda.kernel import generate
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.errors import NoRoom
from eventtensor.ir.plan import Plan
from eventtensor.llm.model.packed_layout import plain_rows
from eventtensor.targets.h200 import H200
from tests.support.emulated import emulated_kernel
from tests.support.streams import normed, packed, panels_of, panels_shape

MOST = 128
# Panels of a task and in all, columns of a row, panels of a bundle.
SHAPES = {
    "one panel a task": (1, 3, 1024, et.bf16, 1),
    "two": (2, 3, 1440, et.f16, 1),
    "three, and one at the end": (3, 4, 1024, et.bf16, 1),
    "a lone group": (4, 4, 512, et.bf16, 1),
    "a group and one panel": (5, 5, 1440, et.f16, 1),
    "two groups": (8, 8, 576, et.bf16, 1),
    "two groups and one panel": (9, 9, 320, et.bf16, 1),
    "one step": (2, 2, 32, et.bf16, 1),
    "a pair": (2, 4, 1440, et.bf16, 2),
    "groups of pairs, and one pair at the end": (10, 12, 512, et.f16, 2),
    "a group that lies together": (4, 8, 576, et.bf16, 4),
    "groups that lie together": (12, 20, 640, et.bf16, 4),
}


def plan_of(name: str, stream: bool) -> Plan:
    panels, total, k, dtype, bundle = SHAPES[name]
    program = packed(panels, k, MOST, total, dtype, bundle)
    plan = run_passes(program, Options(target="cuda", schedule="static", stream=stream)).plan
    assert plan is not None and [s.is_streamed for s in plan.streams] == [stream]
    return plan


def launch(kernel, name: str, n: int) -> np.ndarray:
    """The result, within what sums in f32 of exact products may be off, in any order."""
    _, total, k, dtype, bundle = SHAPES[name]
    rng = np.random.default_rng(n)
    x = rng.standard_normal((n, k)).astype(dtype.numpy)
    w = rng.standard_normal(panels_shape(total, k, bundle)).astype(dtype.numpy)
    y = np.full((n, total * 16), np.nan, np.float32)
    kernel.launch({"n": n}, {"x": x, "w": w, "y": y})
    exact = x.astype(np.float64)
    rows = plain_rows(w.astype(np.float64))
    bound = k * 2.0**-24 * (np.abs(exact) @ np.abs(rows).T)
    assert (np.abs(y - exact @ rows.T) <= bound).all(), f"n = {n}"
    return y


@pytest.mark.parametrize("name", SHAPES)
def test_any_number_of_columns_is_right_and_has_the_same_bits_in_place(name: str) -> None:
    """The paths take turns, launch by launch; columns do not see how many others there are."""
    random = Random(name)
    sizes = [random.randint(1, 8), random.randint(9, 32), random.randint(33, 64), 0, MOST,
             *(random.randint(1, MOST) for _ in range(2)), 1]
    seen: dict[int, bytes] = {}
    for stream, seed in ((True, 0), (True, 1), (False, 0)):
        with emulated_kernel(plan_of(name, stream), 2, seed) as kernel:
            for n in sizes:
                bits = launch(kernel, name, n).tobytes()
                assert seen.setdefault(n, bits) == bits, f"n = {n}, {stream=}, {seed=}"


def test_a_column_has_the_same_bits_beside_any_number_of_others() -> None:
    name, found = "two", []
    _, total, k, dtype, bundle = SHAPES[name]
    rng = np.random.default_rng(0)
    x = rng.standard_normal((MOST, k)).astype(dtype.numpy)
    w = rng.standard_normal(panels_shape(total, k, bundle)).astype(dtype.numpy)
    with emulated_kernel(plan_of(name, True), 2) as kernel:
        for n in (1, 9, 17, 40, MOST):
            y = np.full((n, total * 16), np.nan, np.float32)
            kernel.launch({"n": n}, {"x": x[:n].copy(), "w": w, "y": y})
            found.append(y[:1].tobytes())
    assert len(set(found)) == 1


def test_a_gpu_with_too_little_shared_memory_is_refused() -> None:
    small = replace(H200, capabilities=replace(H200.capabilities, shared_bytes=99 * 1024))
    with pytest.raises(NoRoom, match="leave 2 pages for the stream"):
        generate(plan_of("two", True), small)


def source_of(program: et.Program) -> str:
    plan = run_passes(program, Options(target="cuda", schedule="static")).plan
    assert plan is not None
    return generate(plan).text


def test_what_needs_no_product_is_done_behind_it() -> None:
    """While the stream brings the next task's pages: before it, they would all be there already."""
    text = source_of(normed(128))
    begin, product, scale = (
        text.index(f"et::{name}<") for name in ("begin_activation_load", "wide_gemm", "lane_sum")
    )
    assert begin < product < scale


@pytest.mark.parametrize("dtype", (et.f32, et.bf16), ids=str)
@pytest.mark.parametrize("n", (1, 30, 128))
def test_a_scale_found_behind_a_product_is_right(n: int, dtype: et.DType) -> None:
    program = normed(128, dtype)
    plan = run_passes(program, Options(target="cuda", schedule="static")).plan
    rng = np.random.default_rng(n)
    x, w = (rng.standard_normal(shape).astype(et.bf16.numpy)
            for shape in ((n, 512), panels_shape(8, 512)))
    ss, y = rng.random((n, 16)).astype(np.float32), np.full((n, 128), np.nan, dtype.numpy)
    with emulated_kernel(plan, 2) as kernel:
        kernel.launch({"n": n}, {"x": x, "ss": ss, "w": w, "y": y})
    scale = ss.astype(np.float64).sum(axis=1, keepdims=True)
    want = x.astype(np.float64) @ plain_rows(w.astype(np.float64)).T * scale
    rounded = 1e-4 if dtype is et.f32 else 2**-8
    np.testing.assert_allclose(y.astype(np.float64), want, rtol=rounded, atol=1e-3)


@pytest.mark.parametrize("dtype", (et.f32, et.i32, et.i64, et.bool_), ids=str)
@pytest.mark.parametrize("first", (0, 50))
def test_a_part_of_a_product_is_right_from_any_row_on(first: int, dtype: et.DType) -> None:
    @et.task
    def part(x, w, out):
        made = x @ panels_of(w)
        later = (made * 2.0 + et.iota(128).cast(et.f32)[None, :])[:, first : first + 64]
        found = made[:, first : first + 64] - later
        out[:] = found > 0.0 if dtype is et.bool_ else found.cast(dtype)

    n = 21
    p = et.Program("part")
    rows = et.dim("n", max=64)
    x, y = p.input("x", (rows, 512), et.bf16), p.output("y", (rows, 64), dtype)
    w = p.weight("w", panels_shape(8, 512), et.bf16)
    p.call(part, name="go", grid=(1,), reads=lambda i: (x[:, :], w[:, :, :, :, :, :, :]),
           writes=lambda i: y[:, :])
    rng = np.random.default_rng(first)
    arrays = {"x": rng.integers(-3, 4, (n, 512)).astype(et.bf16.numpy),
              "w": rng.integers(-3, 4, panels_shape(8, 512)).astype(et.bf16.numpy),
              "y": np.ones((n, 64), dtype.numpy)}
    plan = run_passes(p, Options(target="cuda", schedule="static")).plan
    with emulated_kernel(plan, 2) as kernel:
        kernel.launch({"n": n}, arrays)
    made = arrays["x"].astype(np.int64) @ plain_rows(arrays["w"].astype(np.int64)).T
    want = -(made + np.arange(128))[:, first : first + 64]
    assert (arrays["y"] == (want > 0 if dtype is et.bool_ else want)).all()


def test_four_elements_behind_a_product_are_found_before_the_first_is_stored() -> None:
    """They lie apart along the first axis, and those beyond the last are not stored."""
    text = source_of(normed(128))
    assert "for (et::Each<2> t1((e1 + 3) / 4, 128); " in text
    found = re.search(r"et::Batch<float, 4> out_all\(\[&\]\(int n\) \{ (.*?;)", text)
    assert found is not None and "std::min<int64_t>(t1[0] + n * ((e1 + 3) / 4), e1 - 1)" in found[1]
    assert "if (i0 >= e1) break;" in text and "out.data[i0 * 128 + i1] = out_all.at[n];" in text


def best(panels: int) -> et.Program:
    """A product that is scaled and stored, and of each row the largest element and its place."""
    @et.task
    def go(x, w, scale, out, top, at):
        rows = x @ panels_of(w)
        n, columns = rows.shape
        out[:] = found = rows * scale[:, None]
        place = et.argmax(found)
        flat = et.gather(rows.reshape(n * columns), et.iota(n) * columns + place)
        top[:], at[:] = flat * scale, place

    p, n, wide = et.Program("best"), et.dim("n", max=64), 16 * panels
    x, scale = p.input("x", (n, 512), et.bf16), p.input("scale", (n,), et.f32)
    w = p.weight("w", panels_shape(panels, 512), et.bf16)
    out = p.output("out", (n, wide), et.f32)
    top, at = p.output("top", (n,), et.f32), p.output("at", (n,), et.i32)
    p.call(
        go,
        grid=(1,),
        reads=lambda i: (x[:, :], w[:, :, :, :, :, :, :], scale[:]),
        writes=lambda i: (out[:, :], top[:], at[:]),
    )
    return p


@pytest.mark.parametrize("panels", (8, 6))
def test_the_largest_behind_a_product_is_the_first_of_equals(panels: int) -> None:
    """Of zeros, infinities and NaN too, which counts as the smallest."""
    rng, n = np.random.default_rng(panels), 37
    scale = rng.choice([1.0, -1.0, 0.0, -0.0, np.inf, -np.inf, np.nan], n).astype(np.float32)
    arrays = {
        "x": rng.integers(-1, 2, (n, 512)).astype(et.bf16.numpy),
        "scale": scale,
        "w": rng.integers(-1, 2, panels_shape(panels, 512)).astype(et.bf16.numpy),
        "out": np.full((n, 16 * panels), 7, np.float32),
        "top": np.full(n, 7, np.float32),
        "at": np.full(n, -1, np.int32),
    }
    plan = run_passes(best(panels), Options(target="cuda", schedule="static")).plan
    with emulated_kernel(plan, 2) as kernel:
        kernel.launch({"n": n}, arrays)
    made = arrays["x"].astype(np.float32) @ plain_rows(arrays["w"].astype(np.float32)).T
    with np.errstate(invalid="ignore"):
        want = made * scale[:, None]
    numbers = np.nan_to_num(want, nan=0.0, posinf=np.inf, neginf=-np.inf)
    place = [max(range(16 * panels), key=lambda k: (want[i, k] == want[i, k], numbers[i, k]))
             for i in range(n)]
    np.testing.assert_array_equal(arrays["out"], want)
    np.testing.assert_array_equal(arrays["at"], place)
    np.testing.assert_array_equal(arrays["top"], want[np.arange(n), place])


@pytest.mark.parametrize("panels", (8, 4, 2))
def test_a_product_that_is_only_stored_goes_straight_to_its_place(panels: int) -> None:
    text = source_of(packed(panels, 512, MOST, 8))
    call = text[text.index("et::wide_gemm<") :].split(";")[0]
    assert "out.data" in call
