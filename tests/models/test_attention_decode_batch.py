"""Attention of decode batches in the interpreter and the emulator against plain NumPy. Unwritten
slots of the cache hold NaN. Bits and cache equal those of kernels with a separate RoPE task."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import eventtensor as et
from eventtensor.codegen.cuda.kernel import generate
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.ir.plan import Plan, ScheduleKind
from eventtensor.llm.model.attention_block import SPLIT_TOKENS, AttentionBlock, page_tokens
from eventtensor.llm.model.attention_decode_batch import (
    BatchDecodeAttention,
    decode_variant,
    decode_variants,
)
from eventtensor.llm.model.decoder_tasks import Weights
from eventtensor.llm.model.llama import llama
from eventtensor.llm.model.model_presets import PRESETS
from eventtensor.llm.model.step import Step
from eventtensor.llm.model.tile_sizes import Tiles
from tests.models.test_attention_items import (
    SHAPES,
    Arrays,
    Shape,
    arrays,
    border_lengths,
    close,
)
from tests.support.backends import filled, run_direct
from tests.support.emulated import emulated_kernel

LAYERS = 2
# Shapes whose keys flow; each with heads of keys at once, of so many.
FLOWING = {name: SHAPES[name] for name in ("llama", "qwen", "five")}
FLOWING["eight"] = replace(SHAPES["five"], group=8)
CASES = [(name, *heads) for name in ("llama", "qwen") for heads in ((1, 2), (2, 4), (4, 4))]
CASES += [("five", 1, 2), ("five", 2, 2), ("eight", 1, 1)]
LENGTHS = [[1], [63, 64, 65], [127, 128, 129, 1, 2], [600, 17, 33, 16, 15], [1300, 1025, 1]]


def shaped(name: str, keys: int) -> Shape:
    """A shape with the pages that its model would have, and so many heads of keys."""
    s = replace(FLOWING[name], keys=keys)
    page = page_tokens(s.config)
    return replace(s, page=page, split=max(1, SPLIT_TOKENS // page), span=8)


@et.task
def copy(x, out):
    out[:] = x.cast(out.dtype)


@et.task
def after(x, over, out):
    out[:] = x


@et.task
def take(x, out, over):
    out[:] = x.cast(et.f32)
    over[()] = x[0]


def program(s: Shape, heads_per_task: int) -> et.Program:
    """Parts of queries, keys and values in, mixed values out, layer by layer. By tasks that have so
    many heads of keys at once, or (0) that turn rows before."""
    c = replace(s.config, layers=LAYERS)
    wide, decode_only = c.heads * c.head_dim, heads_per_task > 0
    tiles = Tiles(64, 64, 64, 64, 64, qkv_parts=s.parts)
    step = Step(c, Weights("cuda", et.bf16), tiles, 64, decode_only)
    p, T = step.p, step.num_tokens
    attention = BatchDecodeAttention(step, s.span, True, heads_per_task) if decode_only \
        else AttentionBlock(step, s.span, True)
    given = p.input("given", (LAYERS, s.parts, T, s.keys * (s.group + 2) * s.width), et.f32)
    sums = p.input("sums", (LAYERS, T, step.attn.ss.shape[2]), et.f32)
    result = p.output("result", (LAYERS, T, wide), et.f32)
    over = p.scratch("over", (LAYERS + 1, T), et.bf16)
    attention.add_plan()
    p.call(copy, name="begin", grid=(), reads=lambda: attention.position[:],
           writes=lambda: over[0, :])
    with p.loop("l", LAYERS) as at:
        p.call(after, name="project", grid=(T,), reads=lambda t: (given[at, :, t, :], over[at, :]),
               writes=lambda t: attention.qkv[at, :, t, :])
        p.call(copy, name="square", grid=(T,), reads=lambda t: sums[at, t, :],
               writes=lambda t: step.attn.ss[at, t, :])
        attention.attend(at)
        waits = (attention.planned[()], attention.combined[at], attention.attended[at]) \
            if decode_only else None
        p.call(take, grid=(T,), reads=lambda t: attention.mixed[at, t, :],
               writes=lambda t: (result[at, t, :], over[at + 1, t]),
               waits=None if waits is None else lambda t: waits)
    attention.append()
    return p


@cache
def plan_of(s: Shape, heads_per_task: int) -> Plan:
    state = run_passes(program(s, heads_per_task), Options(target="cuda"))
    assert state.plan is not None and state.report is not None and state.report.ok
    return state.plan


def layers(s: Shape, plan: Plan, lengths: list[int]) -> tuple[list[Arrays], Arrays]:
    """What each layer gets by itself, and all of it."""
    each = [arrays(s, lengths, seed) for seed in range(LAYERS)]
    sums = next(int(n.value) for n in plan.program.tensor("sums").shape[2:])
    for a in each:
        a |= {k: each[0][k] for k in ("position", "request", "slot", "table", "rope", "kv")}
        a["ss"] = a["ss"][:, :sums] * (20 / sums)
    one = {k: each[0][k] for k in ("position", "request", "slot", "table", "rope")}
    return each, one | {
        "qk_gains": np.stack([a["gains"] for a in each]), "kv": np.stack([a["kv"] for a in each]),
        "given": np.stack([a["given"] for a in each]), "sums": np.stack([a["ss"] for a in each]),
    }


def launch_of(plan: Plan, given: Arrays) -> tuple[dict[str, int], Arrays]:
    table, kv, split = given["table"], given["kv"], given["kv"].shape[4] * given["table"].shape[2]
    return filled(plan, {
        "S": len(given["position"]), "P": 0, "R": table.shape[0], "M": table.shape[1],
        "pages": kv.shape[1], "positions": len(given["rope"]),
        "W": int((given["position"] // split + 1).sum())}, given)


def launched(
    s: Shape, heads_per_task: int, cases: list[list[int]], workers: int = 3, debug: bool = False
) -> list[Arrays]:
    plan, found = plan_of(s, heads_per_task), []
    with emulated_kernel(plan, workers, debug=debug) as kernel:
        for lengths in cases:
            dims, got = launch_of(plan, layers(s, plan, lengths)[1])
            kernel.launch(dims, got)
            found.append(got)
    return found


@pytest.mark.parametrize(("name", "heads_per_task", "keys"), CASES)
def test_python_bodies_are_attention_and_fill_the_cache(
    name: str, heads_per_task: int, keys: int
) -> None:
    s = shaped(name, keys)
    plan, before = plan_of(s, heads_per_task), plan_of(s, 0)
    for lengths in LENGTHS[:4]:
        each, given = layers(s, plan, lengths)
        got = run_direct(plan.program, *launch_of(plan, given))
        meant = run_direct(before.program, *launch_of(before, given))
        for k, a in enumerate(each):
            close(s, {"mixed": got["result"][k]}, a, f"{name}, {lengths}, layer {k}")
        assert got["kv"].tobytes() == meant["kv"].tobytes(), lengths


@pytest.mark.parametrize(("name", "heads_per_task", "keys"), CASES)
def test_tuned_bodies_give_the_bits_and_the_cache_of_rows_that_are_turned_before(
    name: str, heads_per_task: int, keys: int
) -> None:
    s = shaped(name, keys)
    cases = [*LENGTHS, border_lengths(s)]
    wanted = launched(s, 0, cases)
    for workers in (2, 5):
        for lengths, meant, got in zip(cases, wanted, launched(s, heads_per_task, cases, workers),
                                       strict=True):
            assert np.isfinite(got["result"]).all(), lengths
            assert got["result"].tobytes() == meant["result"].tobytes(), lengths
            assert got["kv"].tobytes() == meant["kv"].tobytes(), lengths


def test_debug_builds_check_what_is_planned_and_give_the_same() -> None:
    """Of rows with an item each, and with several."""
    s, cases = shaped("qwen", 2), [[129, 600, 1], [1300, 1025, 1]]
    for meant, got in zip(launched(s, 2, cases), launched(s, 2, cases, debug=True), strict=True):
        np.testing.assert_allclose(got["result"], meant["result"], rtol=0.02, atol=0.02)


def test_nothing_stands_before_attention_nor_behind_that_of_lone_items() -> None:
    c = PRESETS["qwen3-8b"]
    state = run_passes(llama(c, Weights("cuda", et.bf16), tokens=16, decode_only=True),
                       Options(target="cuda"))
    assert state.plan is not None and state.report is not None and state.report.ok
    assert not any(x.call.name == "apply_rope" for x in state.plan.program.calls)
    kinds = {x.call: x.schedule.kind for x in state.plan.calls}
    assert (kinds["attend"], kinds["combine"]) == (ScheduleKind.ticket, ScheduleKind.static)
    assert {"h_attn", "mixed", "qkv", "part"} <= set(state.plan.shared_scratch)
    text = generate(state.plan).text
    body = {n: text[text.index(f"bool body_{n}(") :].split("\n}\n")[0]
            for n in ("attend", "out_proj")}
    before, inside = body["attend"].split("const auto arrive = [&]")
    assert "ev_wait" not in before and "et::ev_wait(worker, args.cell.qkv_proj_done" in inside
    assert (
        "args.cell.attended, l, int64_t(args.first[args.S]) * 8);"
        in body["out_proj"].split("begin_activation_load_after")[1]
    )


@pytest.mark.parametrize(("name", "rows", "slots"), [
    ("qwen3-8b", 16, 13), ("qwen3-8b", 33, 13), ("qwen3-8b", 64, 13),
    ("qwen3-32b", 16, 11), ("qwen3-32b", 64, 13)])
def test_parts_of_several_heads_lie_where_lines_do_and_leave_the_ring_its_slots(
    name: str, rows: int, slots: int
) -> None:
    """Lines have 64 KB where a launch has more than 16 rows, and that is known."""
    program = llama(PRESETS[name], Weights("cuda", et.bf16), tokens=rows, decode_only=True)
    state = run_passes(program, Options(target="cuda"))
    assert state.plan is not None
    assert f"#define ET_STAGES {slots}\n" in generate(state.plan).text


def test_models_whose_keys_flow_have_a_kernel_for_rows_that_workers_take_at_once() -> None:
    """(least rows, most rows, heads of keys at once)"""
    wanted: dict[str, list[tuple[int, int, int]]] = {
        "llama-3.2-1b": [(1, 16, 1), (17, 33, 2), (34, 64, 4)],
        "qwen3-8b": [(1, 16, 1), (17, 33, 2), (34, 64, 4)],
        "qwen3-32b": [(1, 16, 1), (17, 64, 2)],  # parts of four heads of its keys take 112 KB
        "qwen3-30b-a3b": [(1, 33, 1), (34, 64, 2)], "smollm2-135m": [(1, 64, 1)],
        "tiny-llama": [], "tiny-qwen3": [(1, 64, 1)],
    }
    for name, found in wanted.items():
        assert [(a.least, a.most, a.heads) for a in decode_variants(PRESETS[name])] == found, name
    assert decode_variants(PRESETS["qwen3-8b"], workers=7) == ()
    assert decode_variant(PRESETS["qwen3-8b"], 20).heads == 2
