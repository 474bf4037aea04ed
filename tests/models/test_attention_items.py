"""Attention over a paged KV cache in the interpreter and as emulated CUDA against plain NumPy.
Lengths lie around the borders of pages, splits and items; unwritten slots hold NaN. The size of an
item does not change bits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

import eventtensor as et
from eventtensor.codegen.cuda.kernel import generate
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.ir.plan import Plan
from eventtensor.llm.model.attention import (
    apply_rope,
    attend,
    combine,
    max_item_splits,
    plan_attention,
)
from eventtensor.llm.model.attention_block import (
    kv_heads_per_combine,
    kv_heads_per_rope,
    kv_heads_per_task,
    span_for,
)
from eventtensor.llm.model.attention_mixed import attend_mixed, fits_kv_pipeline
from eventtensor.llm.model.decoder_tasks import Weights
from eventtensor.llm.model.llama import llama
from eventtensor.llm.model.model_config import ModelConfig
from eventtensor.llm.model.model_presets import PRESETS
from eventtensor.runtime.cpu_kernel import CpuKernel
from tests.support.backends import run_direct
from tests.support.emulated import emulated_kernel

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Shape:
    """Heads of keys, queries that look at each, its width, tokens of a page, pages of a split."""

    keys: int = 2
    group: int = 4
    width: int = 64
    page: int = 64
    split: int = 2
    norm: bool = False
    dtype: str = "bf16"
    span: int = 8  # splits of an item
    combined: int = 1  # heads of keys that a task of combine takes
    fill: int = 0  # items of all rows, if those of fewer splits are no more
    in_place: bool = False  # keys and values are loaded where they lie, whatever the span
    parts: int = 1  # in which queries, keys and values come

    @property
    def config(self) -> ModelConfig:
        heads = self.group * self.keys
        family = "qwen3" if self.norm else "llama"
        return ModelConfig(family, 96, heads * self.width, 1, heads, self.keys, self.width, 64,
                           1e-5, 1e4, None, False, self.norm, 2048, (), ())


def program(s: Shape) -> et.Program:
    """Rows of queries, keys and values in, mixed values out."""
    p, dtype = et.Program("attention"), getattr(et, s.dtype)
    T, R, M = et.dim("T", max=64), et.dim("R", max=64), et.dim("M", max=128)
    pages, W = et.dim("pages", max=4096), et.dim("W", max=4096)
    position = p.input("position", (T,), et.i32, bound=2047)
    request = p.input("request", (T,), et.i32, bound=R - 1)
    slot = p.input("slot", (T,), et.i32, bound=pages * s.page - 1, distinct=True)
    table = p.input("table", (R, M, s.split), et.i32, bound=pages - 1)
    rope = p.weight("rope", (2048, 2, s.width // 2), et.f32)
    gains = p.weight("gains", (2, s.width), et.f32)
    each = (s.group + 2) * s.width
    given = p.input("given", (s.parts, T, s.keys * each), et.f32)
    ss = p.input("ss", (T, 20), et.f32)
    kv = p.state("kv", (pages, s.keys, 2, s.page, s.width), dtype)
    mixed = p.output("mixed", (T, s.keys * s.group * s.width), et.f32)  # bf16 would hide bits
    first = p.output("first", (T + 1,), et.i32, bound=W, monotone=True)
    row = p.output("row", (W,), et.i32, bound=T - 1)
    left = p.output("left", (W,), et.i32)
    item_pages = p.output("item_pages", (W, max_item_splits(s.span) * s.split), et.i32,
                          bound=pages - 1)
    q = p.output("q", (T, s.keys, s.group, s.width), dtype)
    part = p.scratch("part", (W, s.keys, s.group, s.width), et.f32)
    part_ml = p.scratch("part_ml", (W, s.keys, 2, s.group), et.f32)

    def cut(i, size):
        return slice(i * size, i * size + size)

    p.call(plan_attention(s.split * s.page, s.span, s.fill), grid=(),
           reads=lambda: (position[:], request[:], table[:, :, :]),
           writes=lambda: (first[:], row[:], left[:], item_pages[:, :]))
    p.call(apply_rope(s.config), grid=(T, s.keys // s.combined),
           reads=lambda t, g: (given[:, t, cut(g, s.combined * each)], ss[t, :], gains[:, :],
                               rope[position[t], :, :]),
           writes=lambda t, g: (q[t, cut(g, s.combined), :, :],
                                kv[slot[t] // s.page, cut(g, s.combined), :, slot[t] % s.page, :]))
    many = s.span > 1 and not s.in_place and fits_kv_pipeline(s.group, s.width, s.page)
    rest, tile = (kv[:, :, :, :, :],) if many else (), f"{s.keys} * w + g"
    p.call(attend_mixed(dtype, s.keys, s.group, s.width, tile) if many else attend(dtype, s.keys),
           grid=(first[T], s.keys),
           reads=lambda w, g: (q[row[w], g, :, :], left[w], kv[item_pages[w, :], g, :, :, :],
                               left[w:W], item_pages[w:W, :], *rest),
           writes=lambda w, g: (part[w, g, :, :], part_ml[w, g, :, :]))
    p.call(combine, grid=(T, s.keys // s.combined),
           reads=lambda t, g: (part[first[t] : first[t + 1], cut(g, s.combined), :, :],
                               part_ml[first[t] : first[t + 1], cut(g, s.combined), :, :]),
           writes=lambda t, g: mixed[t, cut(g, s.combined * s.group * s.width)])
    return p


# ---- numbers -------------------------------------------------------------------------------


def arrays(s: Shape, lengths: list[int], seed: int = 0) -> Arrays:
    """A row for each request, which has `length` tokens with this one; the cache holds those before
    and NaN elsewhere. Tables name shuffled pages, the last row begins with page 0; beyond the end
    is one that nobody has."""
    rng, numpy = np.random.default_rng(seed), getattr(et, s.dtype).numpy
    splits = max(-(-n // (s.page * s.split)) for n in lengths)
    count = len(lengths) * splits * s.split + 1
    order = iter(1 + rng.permutation(count - 2))
    table = np.full((len(lengths), splits * s.split), count - 1, np.int32)
    kv = np.full((count, s.keys, 2, s.page, s.width), np.nan, np.float32).astype(numpy)
    position = np.array(lengths, np.int32) - 1
    for r, n in enumerate(lengths):
        held = -(-n // s.page)
        first = next(order) if r < len(lengths) - 1 else 0
        table[r, :held] = [first, *(next(order) for _ in range(held - 1))]
        for t in range(n - 1):
            drawn = rng.standard_normal((s.keys, 2, s.width))
            kv[table[r, t // s.page], :, :, t % s.page] = drawn.astype(np.float32).astype(numpy)
    row = np.arange(len(lengths))
    slot = table[row, position // s.page] * s.page + position % s.page
    angle = np.arange(2048)[:, None] / 100.0 ** (np.arange(s.width // 2) / s.width)
    work = int((position // (s.page * s.split) + 1).sum())
    each = s.keys * (s.group + 2) * s.width
    return {
        "position": position, "request": row.astype(np.int32), "slot": slot.astype(np.int32),
        "table": table.reshape(len(lengths), splits, s.split), "kv": kv,
        "rope": np.stack([np.cos(angle), np.sin(angle)], 1).astype(np.float32),
        "gains": (1 + rng.standard_normal((2, s.width)) / 4).astype(np.float32),
        "given": (2 * rng.standard_normal((s.parts, len(lengths), each))).astype(np.float32),
        "ss": (rng.uniform(0.5, 2, (len(lengths), 20)) * s.config.hidden / 20).astype(np.float32),
        "mixed": np.zeros((len(lengths), s.keys * s.group * s.width), np.float32),
        "first": np.zeros(len(lengths) + 1, np.int32), "row": np.zeros(work, np.int32),
        "left": np.zeros(work, np.int32),
        "item_pages": np.zeros((work, max_item_splits(s.span) * s.split), np.int32),
        "q": np.zeros((len(lengths), s.keys, s.group, s.width), numpy),
    }


def dims_of(a: Arrays) -> dict[str, int]:
    return {"T": len(a["position"]), "R": a["table"].shape[0], "M": a["table"].shape[1],
            "pages": a["kv"].shape[0], "W": len(a["row"])}


def normed(s: Shape, a: Arrays) -> np.ndarray:
    """What the parts stand for, in float64."""
    mean = a["ss"].astype(np.float64).sum(axis=1, keepdims=True) / s.config.hidden
    return a["given"].astype(np.float64).sum(axis=0) / np.sqrt(mean + 1e-5)


def expected(s: Shape, a: Arrays) -> np.ndarray:
    """Plain attention in float64 over the tokens of each row."""
    def turned(x: np.ndarray, gain: np.ndarray, rope: np.ndarray) -> np.ndarray:
        if s.norm:
            x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * gain
        low, high = np.split(x, 2, axis=-1)
        return np.concatenate([low * rope[0] - high * rope[1], high * rope[0] + low * rope[1]], -1)

    def stored(x: np.ndarray) -> np.ndarray:
        return x.astype(np.float32).astype(a["kv"].dtype).astype(np.float64)

    mixed = []
    for t, last in enumerate(a["position"]):
        heads = normed(s, a)[t].reshape(s.keys, s.group + 2, s.width)
        rope, at = a["rope"][last].astype(np.float64), np.arange(last)
        pages = a["table"][t].reshape(-1)[at // s.page]
        old = a["kv"][pages, :, :, at % s.page].astype(np.float64)  # token, head, 2, width
        for g in range(s.keys):
            q = stored(turned(heads[g, : s.group], a["gains"][0], rope) * s.width**-0.5)
            key = stored(turned(heads[g, s.group], a["gains"][1], rope))
            keys = np.concatenate([old[:, g, 0], key[None]])
            values = np.concatenate([old[:, g, 1], stored(heads[g, s.group + 1])[None]])
            score = q @ keys.T
            weight = np.exp(score - score.max(-1, keepdims=True))
            mixed.append(weight @ values / weight.sum(-1, keepdims=True))
    return np.array(mixed).reshape(a["mixed"].shape)


def close(s: Shape, got: Arrays, given: Arrays, where: str) -> None:
    found, wanted = got["mixed"].astype(np.float64), expected(s, given)
    limit = (1e-5 if s.dtype == "f32" else 5e-3) * (1 + np.abs(wanted))
    excess = (np.abs(found - wanted) / limit).max()
    assert excess <= 1, f"{where}: off by {excess} times what rounding explains"


def copied(a: Arrays) -> Arrays:
    return {k: v.copy() for k, v in a.items()}


@cache
def cuda_plan(s: Shape, schedule: str = "auto") -> Plan:
    state = run_passes(program(s), Options(target="cuda", schedule={"attend": schedule}))
    assert state.plan is not None and state.report is not None and state.report.ok
    return state.plan


def emulated(
    s: Shape, launches: list[list[int]], seed: int = 0, workers: int = 3, schedule: str = "auto"
) -> list[Arrays]:
    found = []
    with emulated_kernel(cuda_plan(s, schedule), workers, seed) as kernel:
        for lengths in launches:
            got = arrays(s, lengths)
            kernel.launch(dims_of(got), got)
            found.append(got)
    return found


# ---- claims --------------------------------------------------------------------------------

# Splits of 128 tokens: one, some, rows of one item, and of two.
LENGTHS = [[1], [63, 64, 65], [127, 128, 129, 1, 2], [600, 17], [1300, 1025, 1], [2048, 1]]
SHAPES = {
    "llama": Shape(combined=2, parts=8),
    "qwen": Shape(group=2, width=128, page=32, split=4, norm=True, parts=3),
    "one_head": Shape(group=1, width=16, page=256, split=1), "eight": Shape(group=8, width=32),
    "odd": Shape(group=3, width=80, page=51, split=2),
    "f32": Shape(dtype="f32", norm=True, span=1),
    "splits": Shape(span=1),
    "many": Shape(group=18, width=32, page=128, split=1, span=2, combined=2, parts=20),
    "short": Shape(group=5, width=48, page=16, split=1, span=3),
    "spread": Shape(group=2, width=128, page=32, split=4, fill=7),
    "five": Shape(group=5, width=128, page=32, split=4, norm=True),
    "wide": Shape(group=6, width=256, page=16, split=8),
}


def border_lengths(s: Shape) -> list[int]:
    """At the ends of splits and items, where the last item is as short and as long as it can be,
    and between."""
    split, span = s.page * s.split, s.span
    ends = (split, span * split, (2 * span - 1) * split, min(2 * span * split, 2047))
    return [n + k for n in ends for k in (0, 1) if n + k <= 2048] + [1, 700, 1100]


@pytest.mark.parametrize("name", SHAPES)
def test_python_bodies_are_attention_whatever_lies_in_unwritten_slots(name: str) -> None:
    s = SHAPES[name]
    for lengths in (*LENGTHS[:4], [1300, 1]):
        given = arrays(s, lengths)
        got = run_direct(cuda_plan(s).program, dims_of(given), given)
        close(s, got, given, str(lengths))


@pytest.mark.parametrize("name", SHAPES)
def test_tuned_bodies_are_attention_whatever_lies_in_unwritten_slots(name: str) -> None:
    s = SHAPES[name]
    cases = [*LENGTHS, border_lengths(s)]
    for lengths, got in zip(cases, emulated(s, cases), strict=True):
        given = arrays(s, lengths)
        close(s, got, given, str(lengths))
        meant = run_direct(cuda_plan(s).program, dims_of(given), given)
        for exact in ("first", "row", "left", "item_pages"):
            np.testing.assert_array_equal(got[exact], meant[exact], err_msg=exact)
        for rounded in ("q", "kv"):
            np.testing.assert_array_equal(
                got[rounded].astype(np.float32), meant[rounded].astype(np.float32), rounded)


@pytest.mark.parametrize("name", SHAPES)
def test_threads_of_a_cpu_give_attention_whatever_lies_in_unwritten_slots(name: str) -> None:
    s = replace(SHAPES[name], span=1)
    state = run_passes(program(s), Options(target="cpu"))
    assert state.plan is not None
    kernel = CpuKernel(state.plan, Options(workers=2))
    for lengths in LENGTHS:
        got = arrays(s, lengths)
        kernel.launch(dims_of(got), got)
        close(s, got, arrays(s, lengths), str(lengths))
    kernel.close()


def test_a_row_gives_the_same_bits_alone_and_in_any_batch() -> None:
    s, lengths = SHAPES["llama"], [600, 1, 129]
    together = arrays(s, lengths)
    with emulated_kernel(cuda_plan(s), 3) as kernel:
        got = copied(together)
        kernel.launch(dims_of(got), got)
        for r, n in enumerate(lengths):
            alone = copied(together)
            for name in ("position", "slot", "ss", "mixed", "q"):
                alone[name] = alone[name][r : r + 1].copy()
            alone["given"] = alone["given"][:, r : r + 1].copy()
            alone["request"] = np.array([r], np.int32)
            items = max(1, ((n - 1) // 128 + 1) // s.span)
            alone["first"] = np.zeros(2, np.int32)
            alone |= {k: np.zeros((items, *alone[k].shape[1:]), np.int32)
                      for k in ("row", "left", "item_pages")}
            kernel.launch(dims_of(alone), alone)
            assert alone["mixed"].tobytes() == got["mixed"][r : r + 1].tobytes(), n


# With at most 6 items: lengths of rows, and the splits that an item of them has.
SPREAD = [([600, 17], 1), ([1300, 1], 2), ([2048, 1], 4), ([2048] * 4, 8), ([128] * 7, 8)]


@pytest.mark.parametrize("most", [8, 3])
def test_few_rows_have_items_of_fewer_splits(most: int) -> None:
    s = Shape(span=most, fill=6)
    for (lengths, span), got in zip(SPREAD, emulated(s, [x for x, _ in SPREAD]), strict=True):
        given = arrays(s, lengths)
        splits, span = (given["position"] // 128 + 1), min(span, most)
        np.testing.assert_array_equal(np.diff(got["first"]), np.maximum(splits // span, 1))
        meant = run_direct(cuda_plan(s).program, dims_of(given), given)
        for exact in ("first", "row", "left", "item_pages"):
            np.testing.assert_array_equal(got[exact], meant[exact], err_msg=exact)
        close(s, got, given, str(lengths))
        close(s, meant, given, str(lengths))


def test_a_step_gives_the_same_bits_in_every_run_whatever_its_span() -> None:
    s = Shape(fill=6)
    cases = [lengths for lengths, _ in SPREAD]
    runs = [emulated(s, cases, seed, workers) for seed, workers in ((0, 3), (1, 5))]
    for (lengths, _), one, other in zip(SPREAD, *runs, strict=True):
        assert one["mixed"].tobytes() == other["mixed"].tobytes(), lengths


def test_models_spread_few_rows_over_the_workers_unless_bits_are_to_be_alike() -> None:
    for name, fill in (("qwen3-30b-a3b", 33), ("llama-3.2-1b", 16)):
        for batch_invariant, wanted in ((False, fill), (True, 0)):
            made = llama(PRESETS[name], Weights("cuda", et.bf16),
                         batch_invariant=batch_invariant).build()
            body = made.call("plan").cuda_body
            assert body is not None
            assert f"plan<8, {wanted}>" in body.source, (name, batch_invariant)


def test_runs_and_orders_of_tasks_give_the_same_bits() -> None:
    s = replace(SHAPES["qwen"], span=2)
    found = {emulated(s, [[380, 270, 5]], seed)[0]["mixed"].tobytes() for seed in (0, 1, 2)}
    assert len(found) == 1


@pytest.mark.parametrize("name", ["llama", "qwen"])
def test_keys_that_flow_ahead_of_tasks_give_the_bits_of_those_in_place(name: str) -> None:
    """Workers take one tile or many, of items with an odd and an even number of chunks, and none
    for some warps."""
    s, lengths = SHAPES[name], [300, 1, 129, 40, 1025, 17, 256, 513]
    wanted = emulated(replace(s, in_place=True), [lengths])[0]["mixed"].tobytes()
    for workers, seed in ((1, 0), (2, 1), (5, 2), (17, 3)):
        twice = emulated(s, [lengths, lengths], seed, workers)
        assert [got["mixed"].tobytes() == wanted for got in twice] == [True, True], workers
    for schedule in ("static", "push"):  # nobody knows the next tile
        assert emulated(s, [lengths], 0, 2, schedule)[0]["mixed"].tobytes() == wanted, schedule


def test_tasks_know_their_next_tile_and_wait_for_all_that_it_reads() -> None:
    text = generate(cuda_plan(SHAPES["llama"])).text
    assert "et::PrefetchedTickets(worker, args.cell.ticket_attend" in text
    flowing, in_place = (
        next(e for e in cuda_plan(s).events if e.name == "apply_rope_done")
        for s in (SHAPES["llama"], SHAPES["splits"])
    )
    assert (len(flowing.shape), len(in_place.shape)) == (0, 1)


def test_items_beyond_the_last_row_are_planned_as_the_python_body_says() -> None:
    s = SHAPES["llama"]
    given = arrays(s, [200, 129])
    for name in ("row", "left", "item_pages"):
        given[name] = np.zeros((9, *given[name].shape[1:]), np.int32)
    meant = run_direct(cuda_plan(s).program, dims_of(given), given)
    with emulated_kernel(cuda_plan(s), 2) as kernel:
        kernel.launch(dims_of(given), given)
    for name in ("first", "row", "left", "item_pages"):
        np.testing.assert_array_equal(given[name], meant[name], err_msg=name)


def test_f32_models_have_no_tuned_product_and_bf16_ones_make_no_copy_of_the_cache() -> None:
    assert "attention::attend" not in generate(cuda_plan(SHAPES["f32"])).text
    text = generate(cuda_plan(SHAPES["llama"])).text
    assert "attention::attend_mixed<q_0, q_1, kv_2, 2, SMEM_FLOATS>" in text
    assert "kv_tile" not in text


def test_models_take_groups_and_several_heads_where_a_gpu_has_work_for_all_its_workers() -> None:
    c, tuned = PRESETS["llama-3.2-1b"], Weights("cuda", et.bf16)
    assert [span_for(tuned, n) for n in (1, 2, 128)] == [1, 8, 8]
    assert span_for(Weights("cuda", et.f32), 128) == span_for(Weights("cpu", et.bf16), 128) == 1
    assert [kv_heads_per_task(c, "cuda", n) for n in (1, 16, 17, 64, 128)] == [1, 1, 2, 4, 4]
    assert kv_heads_per_task(c, "cpu", 128) == 1
    assert [kv_heads_per_rope(c, n, 4) for n in (1, 2, 4)] == [1, 2, 4]
    assert [kv_heads_per_rope(PRESETS["qwen3-32b"], n, 4) for n in (1, 2, 4)] == [1, 2, 2]
    assert [kv_heads_per_rope(PRESETS["qwen3-30b-a3b"], 4, n) for n in (4, 8)] == [2, 1]
    known = ("llama-3.2-1b", "qwen3-8b", "qwen3-30b-a3b")
    assert [kv_heads_per_combine(PRESETS[name], 4) for name in known] == [4, 4, 2]
    assert [kv_heads_per_combine(c, n) for n in (1, 2)] == [1, 2]
