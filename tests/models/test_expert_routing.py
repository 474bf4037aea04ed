"""The CUDA routing in the emulator against its Python body: ties, zeros of both signs, NaN, and any
number of tokens."""

from __future__ import annotations

import numpy as np
import pytest

import eventtensor as et
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.llm.model.model_config import Experts
from eventtensor.llm.model.model_presets import PRESETS
from eventtensor.llm.model.moe_block import pick_experts, route, route_single
from tests.support.backends import run_direct
from tests.support.emulated import emulated_kernel

ROWS = 70
CONFIG, SUMS = PRESETS["qwen3-30b-a3b"], 40
LISTS = ("rank", "pair", "active", "expert", "begin", "member")


def program(x: Experts, parts: int = 1) -> et.Program:
    p, T = et.Program("route"), et.dim("T", max=ROWS)
    E, top = x.count, x.top
    scores, share = p.input("scores", (parts, T, E), et.f32), p.output("share", (T, top), et.f32)
    rank, pair = (p.output(name, (T, top), et.i32) for name in ("rank", "pair"))
    active, expert = p.output("active", (), et.i32), p.output("expert", (E,), et.i32)
    begin, member = p.output("begin", (E + 1,), et.i32), p.output("member", (T * top,), et.i32)
    chosen, given = p.scratch("chosen", (T, top), et.i32), p.scratch("given", (T, top), et.f32)
    p.call(pick_experts(x), grid=(T,), reads=lambda t: scores[:, t : t + 1, :],
           writes=lambda t: (chosen[t : t + 1, :], given[t : t + 1, :]))
    p.call(route(x, ROWS), grid=(), reads=lambda: (chosen[:, :], given[:, :]),
           writes=lambda: (share[:, :], rank[:, :], pair[:, :], active[()], expert[:], begin[:],
                           member[:]))
    return p


def arrays(x: Experts, scores: np.ndarray) -> dict[str, np.ndarray]:
    """Of scores in parts."""
    rows = scores.shape[1]
    shapes = {"rank": (rows, x.top), "pair": (rows, x.top), "active": (), "expert": (x.count,),
              "begin": (x.count + 1,), "member": (rows * x.top,)}
    return {"scores": scores.astype(np.float32), "share": np.empty((rows, x.top), np.float32),
            **{n: np.full(s, -9, np.int32) for n, s in shapes.items()}}


def cases(experts: int) -> list[np.ndarray]:
    rng = np.random.default_rng(experts)
    one = np.zeros((9, experts))
    one[:, 5] = 2
    signs = rng.choice([0.0, -0.0, -1.0], (12, experts))
    holes = rng.standard_normal((6, experts))
    holes[2, ::2], holes[4] = np.nan, np.nan
    return [*(rng.standard_normal((n, experts)) * 2 for n in (1, 2, 31, 70)), one, signs, holes,
            rng.integers(-2, 3, (33, experts)), np.full((3, experts), -np.inf)]


def row_program(x: Experts, parts: int) -> et.Program:
    p, T = et.Program("route_single"), et.dim("T", max=1)
    scores = p.input("scores", (parts, T, x.count), et.f32)
    squares = p.input("squares", (T, SUMS), et.f32)
    share = p.output("share", (T, x.top), et.f32)
    active, expert = p.output("active", (), et.i32), p.output("expert", (x.top,), et.i32)
    p.call(route_single(x, CONFIG), grid=(), reads=lambda: (scores[:, :, :], squares[:, :]),
           writes=lambda: (share[:, :], active[()], expert[:]))
    return p


@pytest.mark.parametrize("x", [Experts(48, 6, True), Experts(128, 8, False)], ids=str)
@pytest.mark.parametrize("parts", [1, 4])
def test_the_tuned_routing_of_one_row_is_the_python_one(x: Experts, parts: int) -> None:
    plan = run_passes(row_program(x, parts), Options("cuda")).plan
    assert plan is not None
    rng = np.random.default_rng(parts)
    with emulated_kernel(plan, 1) as kernel:
        for whole in cases(x.count):
            more = rng.standard_normal((parts - 1, 1, x.count))
            scores = np.concatenate([whole[None, :1], more])
            given = {"scores": scores.astype(np.float32), "active": np.zeros((), np.int32),
                     "squares": rng.uniform(1, 60, (1, SUMS)).astype(np.float32),
                     "share": np.empty((1, x.top), np.float32), "expert": np.zeros(x.top, np.int32)}
            with np.errstate(invalid="ignore"):
                wanted = run_direct(plan.program, {"T": 1}, given)
            kernel.launch({"T": 1}, given)
            np.testing.assert_array_equal(given["expert"], wanted["expert"])
            assert given["active"] == wanted["active"] == x.top
            np.testing.assert_allclose(given["share"], wanted["share"], rtol=1e-5)


@pytest.mark.parametrize("x", [Experts(48, 6, False), Experts(128, 8, True)], ids=str)
@pytest.mark.parametrize("parts", [1, 3])
def test_the_tuned_routing_is_the_python_one(x: Experts, parts: int) -> None:
    plan = run_passes(program(x, parts), Options("cuda")).plan
    assert plan is not None
    rng = np.random.default_rng(parts)
    with emulated_kernel(plan, 1) as kernel:
        for whole in cases(x.count):
            more = rng.standard_normal((parts - 1, *whole.shape))
            scores = np.concatenate([whole[None], more])
            given, rows = arrays(x, scores), {"T": len(whole)}
            with np.errstate(invalid="ignore"):
                wanted = run_direct(plan.program, rows, given)
            kernel.launch(rows, given)
            for name in LISTS:
                np.testing.assert_array_equal(given[name], wanted[name], name)
            np.testing.assert_allclose(given["share"], wanted["share"], rtol=1e-5)
