"""Attention of a single token in the interpreter, on threads and as emulated CUDA against plain
NumPy. Lengths lie around the borders of blocks, pages and splits; unwritten slots hold NaN."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from unittest.mock import patch

import numpy as np
import pytest

import eventtensor as et
from eventtensor.codegen.cuda.kernel import generate
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.ir.plan import HandoffKind, Plan, StreamKind
from eventtensor.llm.model import attention_decode_single
from eventtensor.llm.model.attention_block import SPLIT_TOKENS, page_tokens
from eventtensor.llm.model.attention_decode_single import (
    SingleDecodeAttention,
    combined_columns,
    has_single_decode,
    kv_heads_per_append,
    parts_for,
)
from eventtensor.llm.model.decoder_tasks import Weights
from eventtensor.llm.model.llama import llama
from eventtensor.llm.model.model_presets import PRESETS
from eventtensor.llm.model.step import Step
from eventtensor.llm.model.tile_sizes import tiles_for
from eventtensor.runtime.cpu_kernel import CpuKernel
from tests.models.test_attention_items import SHAPES, Arrays, Shape, arrays, close, normed
from tests.support.backends import filled, run_direct
from tests.support.emulated import emulated_kernel

LAYERS = 2
# Around sixteen tokens, pages, a page for each part and sixteen tokens for each warp of each part.
LENGTHS = (1, 2, 16, 17, 33, 64, 65, 128, 129, 255, 256, 257, 700, 2047, 2048)


def shaped(name: str) -> Shape:
    """A shape with the pages that its model would have."""
    s = SHAPES[name]
    page = page_tokens(s.config)
    return replace(s, page=page, split=max(1, SPLIT_TOKENS // page), dtype="bf16")


@et.task
def copy(x, out):
    out[:] = x


def program(s: Shape) -> et.Program:
    """Queries, keys and values in, mixed values out."""
    c = replace(s.config, layers=LAYERS)
    weights = Weights("cuda", et.bf16)
    step = Step(c, weights, tiles_for(c, "cuda"), 1)
    p, attention = step.p, SingleDecodeAttention(step)
    wide = c.heads * c.head_dim
    given = p.input("given", (LAYERS, attention.qkv.shape[2]), et.f32)
    result = p.output("result", (LAYERS, wide), et.f32)
    attention.add_plan()
    with p.loop("l", LAYERS) as at:
        p.call(copy, name="project", grid=(), reads=lambda: given[at, :],
               writes=lambda: attention.qkv[at, 0, :])
        attention.attend(at)
        p.call(copy, name="take", grid=(), reads=lambda: attention.mixed[at, 0, :],
               writes=lambda: result[at, :])
    attention.append()
    return p


def row_arrays(s: Shape, length: int) -> tuple[list[Arrays], Arrays]:
    """What each layer gets by itself, and all of it."""
    each = [arrays(s, [length], seed) for seed in range(LAYERS)]
    one = {k: each[0][k] for k in ("position", "request", "slot", "table", "rope")}
    for a in each:
        a["table"], a["slot"], a["rope"] = one["table"], one["slot"], one["rope"]
    # Pages of all layers are those of the first, whatever was drawn for them.
    first = each[0]
    for a in each[1:]:
        a["kv"] = np.where(np.isnan(first["kv"].astype(np.float32)), first["kv"],
                           first["kv"] * a["gains"][0].astype(first["kv"].dtype))
    together = one | {
        "qk_gains": np.stack([a["gains"] for a in each]), "kv": np.stack([a["kv"] for a in each]),
        "given": np.concatenate([normed(s, a) for a in each]).astype(np.float32),
        "result": np.concatenate([a["mixed"] for a in each]),
    }
    return each, together


@cache
def plan_of(name: str, target: str, parts: int = attention_decode_single.PARTS) -> Plan:
    with patch.object(attention_decode_single, "PARTS", parts):
        state = run_passes(program(shaped(name)), Options(target=target))
    assert state.plan is not None and state.report is not None and state.report.ok
    return state.plan


def launch_of(plan: Plan, given: Arrays) -> tuple[dict[str, int], Arrays]:
    return filled(plan, {
        "S": 1, "P": 0, "R": 1, "M": given["table"].shape[1], "pages": given["kv"].shape[1],
        "positions": len(given["rope"])}, given)


def check(name: str, length: int, each: list[Arrays], given: Arrays, got: Arrays) -> None:
    s = shaped(name)
    for k, a in enumerate(each):
        close(s, {"mixed": got["result"][k : k + 1]}, a, f"{name}, {length} tokens, layer {k}")
    # The row's entry is written, and nothing else.
    at, page = int(given["slot"][0]), s.page
    changed = got["kv"].astype(np.float32) != given["kv"].astype(np.float32)
    changed &= ~(np.isnan(got["kv"].astype(np.float32)) & np.isnan(given["kv"].astype(np.float32)))
    assert changed[:, at // page, :, :, at % page].all()
    changed[:, at // page, :, :, at % page] = False
    assert not changed.any()


NAMES = ("llama", "qwen", "one_head", "eight", "odd", "many", "short")


@pytest.mark.parametrize("name", NAMES)
def test_python_bodies_are_attention(name: str) -> None:
    plan = plan_of(name, "cuda")
    for length in (1, 17, 129, 700):
        each, given = row_arrays(shaped(name), length)
        dims, all_ = launch_of(plan, given)
        check(name, length, each, given, run_direct(plan.program, dims, all_))


@pytest.mark.parametrize("name", NAMES)
def test_tuned_bodies_are_attention_and_append_what_the_python_bodies_do(name: str) -> None:
    plan = plan_of(name, "cuda")
    with emulated_kernel(plan, 3) as kernel:
        for length in LENGTHS:
            each, given = row_arrays(shaped(name), length)
            dims, got = launch_of(plan, given)
            kernel.launch(dims, got)
            check(name, length, each, given, got)
            if length in (17, 129):
                meant = run_direct(plan.program, *launch_of(plan, given))
                np.testing.assert_array_equal(got["kv"].astype(np.float32),
                                              meant["kv"].astype(np.float32))


@pytest.mark.parametrize("name", ["llama", "qwen", "many", "odd"])
def test_parts_of_more_tokens_than_their_warps_take_at_once(name: str) -> None:
    plan = plan_of(name, "cuda", 2)
    with emulated_kernel(plan, 3) as kernel:
        for length in (255, 256, 257, 272, 273, 513, 1500):
            each, given = row_arrays(shaped(name), length)
            dims, got = launch_of(plan, given)
            kernel.launch(dims, got)
            check(name, length, each, given, got)


@pytest.mark.parametrize("name", ["llama", "qwen"])
def test_threads_of_a_cpu_give_attention(name: str) -> None:
    plan = plan_of(name, "cpu")
    kernel = CpuKernel(plan, Options(workers=2))
    for length in (1, 129, 257):
        each, given = row_arrays(shaped(name), length)
        dims, got = launch_of(plan, given)
        kernel.launch(dims, got)
        check(name, length, each, given, got)
    kernel.close()


@pytest.mark.parametrize("name", ["llama", "qwen"])
def test_pages_in_the_ring_and_where_they_lie_give_the_same_bits(name: str) -> None:
    with patch.object(attention_decode_single, "PARTS", 2):
        state = run_passes(program(shaped(name)), Options(target="cuda", stream=False))
    found = []
    assert state.plan is not None
    for plan in (plan_of(name, "cuda", 2), state.plan):
        with emulated_kernel(plan, 3) as kernel:
            for length in (1, 65, 700, 1500):
                _, given = row_arrays(shaped(name), length)
                dims, got = launch_of(plan, given)
                kernel.launch(dims, got)
                found.append(got["result"].tobytes())
    assert found[:4] == found[4:]
    assert [s.call for s in plan_of(name, "cuda", 2).streams if s.kind is StreamKind.hand] \
        == ["attend"]


def test_orders_of_tasks_give_the_same_bits() -> None:
    plan, found = plan_of("qwen", "cuda"), set()
    _, given = row_arrays(shaped("qwen"), 380)
    for seed in (0, 1, 2):
        with emulated_kernel(plan, 3, seed) as kernel:
            dims, got = launch_of(plan, given)
            kernel.launch(dims, got)
            found.add(got["result"].tobytes())
    assert len(found) == 1


def test_all_that_a_layer_waits_for_comes_by_flags_and_nobody_waits_for_the_cache() -> None:
    c, one = PRESETS["llama-3.2-1b"], Weights("cuda", et.bf16)
    state = run_passes(llama(c, one, tokens=1), Options(target="cuda"))
    assert state.plan is not None and state.report is not None and state.report.ok
    plan = state.plan
    kinds = {h.call: h.kind for h in plan.handoffs if h.kind is not HandoffKind.tagged}
    assert kinds == {"append": HandoffKind.counter}
    assert not plan.call("append").notifies
    text = generate(plan).text
    body = text[text.index("bool body_attend(") : text.index("bool task_attend(")]
    assert "ev_wait" not in body and "const auto arrive = [&]" in body


def test_models_of_one_row_attend_by_parts() -> None:
    c, tuned = PRESETS["llama-3.2-1b"], Weights("cuda", et.bf16)
    assert has_single_decode(tuned, 1, 1)
    assert not has_single_decode(tuned, 2, 1) and not has_single_decode(tuned, 1, 8)
    assert not has_single_decode(Weights("cuda", et.f32), 1, 1)
    assert not has_single_decode(Weights("cpu", et.bf16), 1, 1)
    assert [parts_for(c, n) for n in (8, 31, 132)] == [1, 2, 16]
    assert [kv_heads_per_append(PRESETS[n]) for n in ("llama-3.2-1b", "qwen3-8b")] == [8, 4]
    assert [combined_columns(replace(c, head_dim=n)) for n in (128, 80, 64, 48)] == [64, 16, 64, 16]
