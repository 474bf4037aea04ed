"""What hand-tuned bodies are given: gathered rows where they lie, single elements by value, extents
that are numbers by name, memory of the arena, and headers."""

from __future__ import annotations

import numpy as np
import pytest

import eventtensor as et
from eventtensor.codegen.cuda.kernel import generate
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.errors import UnboundedTile
from eventtensor.ir.plan import Plan
from eventtensor.runtime.cpu_kernel import CpuKernel
from tests.support.backends import run_direct
from tests.support.emulated import emulated_kernel

# out[c] = scale * sum over rows r of x[rows[r], c], through memory of the arena on the GPU
CUDA = """
#include "gathered.h"
for (int64_t c = et::thread_rank(); c < 2 * x_1; c += et::num_threads()) {
  sums[c] = 0.0f;
  for (int64_t r = c / x_1; r < x_0; r += 2)
    sums[c] += et::value(x.data[x.rows[0][r] + c % x_1 * x.stride[1]]);
}
et::sync();
for (int64_t c = et::thread_rank(); c < x_1; c += et::num_threads())
  out.data[c] = scale * (sums[c] + sums[c + x_1]) + float(i);
"""
CPP = """
for (int64_t c = 0; c < x_1; ++c) {
  float sum = 0.0f;
  for (int64_t r = 0; r < x.extent[0]; ++r) sum += et::value(x.data[x.rows[0][r] + c]);
  out.data[c] = scale * sum + float(i);
}
"""


def gathered(count: str = "2 * x_1 + 8") -> et.Program:
    @et.task(cuda=et.CudaBody(CUDA, scratch=(et.Scratch("sums", et.f32, count),)), cpp=CPP)
    def mix(x, scale, out, *, i):
        out[:] = x.sum(axis=0) * scale + i.cast(et.f32)

    p, n = et.Program("gathered"), et.dim("n", max=64)
    x = p.input("x", (n, 24), et.bf16)
    at = p.input("at", (5, 3), et.i32, bound=n - 1)
    scale, out = p.input("scale", (5,), et.f32), p.output("out", (5, 24), et.f32)
    p.call(mix, grid=(5,), reads=lambda i: (x[at[i, :], :], scale[i]), writes=lambda i: out[i, :])
    return p


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"x": rng.integers(-8, 8, (9, 24)).astype(et.bf16.numpy),
            "at": np.array([[0, 8, 3], [4, 4, 4], [1, 2, 0], [7, 0, 7], [8, 8, 0]], np.int32),
            "scale": np.arange(5, dtype=np.float32) + 0.5, "out": np.zeros((5, 24), np.float32)}


def plan_of(program: et.Program, target: str) -> Plan:
    state = run_passes(program, Options(target=target))
    assert state.plan is not None and state.report is not None and state.report.ok
    return state.plan


def emulated(program: et.Program) -> np.ndarray:
    got = arrays()
    with emulated_kernel(plan_of(program, "cuda"), 2) as kernel:
        kernel.launch({"n": 9}, got)
    return got["out"]


def meant() -> np.ndarray:
    return run_direct(plan_of(gathered(), "cuda").program, {"n": 9}, arrays())["out"]


def test_gathered_rows_are_read_where_they_lie() -> None:
    text = generate(plan_of(gathered(), "cuda")).text
    assert "et::Gathered<const et::bf16, 2> x, float scale, " in text and "x_tile" not in text
    np.testing.assert_array_equal(emulated(gathered()), meant())
    kernel, got = CpuKernel(plan_of(gathered(), "cpu"), Options(workers=2)), arrays()
    kernel.launch({"n": 9}, got)
    kernel.close()
    np.testing.assert_array_equal(got["out"], meant())


def test_what_the_text_takes_of_the_arena_has_room() -> None:
    """More than shared memory has: a kernel without room for it stops."""
    np.testing.assert_array_equal(emulated(gathered("4096 * x_1 + 8")), meant())


def test_room_of_unknown_size_is_an_error() -> None:
    with pytest.raises(UnboundedTile, match=r"of 2 \* n \+ 8 elements, and 'n' is no number"):
        generate(plan_of(gathered("2 * n + 8"), "cuda"))


def test_only_what_the_text_names_is_passed() -> None:
    text = generate(plan_of(gathered(), "cuda")).text
    head = text[text.index("void hand_mix(") :]
    assert "int64_t i)" in head[: head.index("{")] and "int64_t n" not in head[: head.index("{")]
    assert "constexpr int x_1 = 24;" in text and "constexpr int x_0 = 3;" in text
    assert "out_0" not in text


# out[i] = x[i] + the sum of the first count[i] blocks of w[i], of which the loader brings each
FED = """
for (int k = 0; k < int(count); ++k) {
  const float* block = w.data + k * w.stride[0];
#if ET_STREAM
  if constexpr (streamed) {
    float some[4];
    uint32_t words[4];
    const int64_t c = 4 * (et::thread_rank() % (w_1 / 4));
    et::ptx::ld_shared_v4(worker.pipeline.wait_stage(k) + uint32_t(4 * c), words);
    std::memcpy(some, words, 16);
    if (et::thread_rank() < w_1 / 4)
      for (int n = 0; n < 4; ++n) out.data[c + n] = (k == 0 ? x.data[c + n] : out.data[c + n])
          + some[n];
    worker.pipeline.release(k, 1);
    continue;
  }
#endif
  for (int64_t c = et::thread_rank(); c < w_1; c += et::num_threads())
    out.data[c] = (k == 0 ? x.data[c] : out.data[c]) + block[c];
  et::sync();
}
#if ET_STREAM
if constexpr (streamed) worker.pipeline.advance(uint32_t(count));
#endif
"""
BRING = """
for (int k = 0; k < int(count) && !worker.stopped(); ++k)
  worker.whole(w.data + k * w.stride[0], 1, 4 * w_1, 4 * w_1);
"""


def fed() -> et.Program:
    @et.task(cuda=et.CudaBody(FED, producer=et.Producer(BRING, operands=("w", "count"))))
    def take(x, w, count, out):
        there = et.iota(w.shape[0]) < count
        out[:] = x + et.where(there[:, None], w, 0.0).sum(axis=0)

    p = et.Program("fed")
    x, w = p.input("x", (5, 64), et.f32), p.state("w", (5, 40, 64), et.f32)
    count, out = p.input("count", (5,), et.i32, bound=(1, 40)), p.output("out", (5, 64), et.f32)
    p.call(take, grid=(5,), reads=lambda i: (x[i, :], w[i, :, :], count[i]),
           writes=lambda i: out[i, :])
    return p


@pytest.mark.parametrize("stream", [True, False])
def test_a_text_for_the_loader_brings_pages_that_run_time_data_counts(stream: bool) -> None:
    """More than the ring has slots, in some tasks."""
    plan = run_passes(fed(), Options(target="cuda", stream=stream)).plan
    assert plan is not None
    text = generate(plan).text
    assert ("void feed_take_pages(et::ProducerWarp& worker, " in text) is stream
    assert f"constexpr bool streamed = {str(stream).lower()};" in text
    rng = np.random.default_rng(0)
    given = {"x": rng.integers(-9, 9, (5, 64)).astype(np.float32),
             "w": rng.integers(-9, 9, (5, 40, 64)).astype(np.float32),
             "count": np.array([1, 40, 3, 14, 27], np.int32), "out": np.zeros((5, 64), np.float32)}
    wanted = run_direct(plan.program, {}, given)["out"]
    for seed in (0, 1):
        with emulated_kernel(plan, 2, seed) as kernel:
            got = {k: v.copy() for k, v in given.items()}
            kernel.launch({}, got)
            np.testing.assert_array_equal(got["out"], wanted)
