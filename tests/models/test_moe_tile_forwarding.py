"""Consecutive tiles of a worker, as in the MoE sublayer: the producer warp forwards what it looks
up to the tasks, another warp notifies for them, and gathered columns load while others are read."""

from __future__ import annotations

import pytest

import eventtensor as et
from eventtensor.codegen.cuda import CudaSource, generate
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from tests.models.moe_block_program import config, moe_block_program

CALLS = ("experts_gate_up", "experts_down")


def made(schedule: str, tokens: int = 128, debug: bool = False) -> CudaSource:
    how = tuple((call, schedule) for call in CALLS)
    program = moe_block_program(config(), "cuda", et.bf16, tokens)
    plan = run_passes(program, Options("cuda", schedule=how, debug=debug)).plan
    assert plan is not None
    return generate(plan, debug=debug)


def function(text: str, name: str) -> str:
    begin = text.index(f" {name}(")
    return text[begin : text.index("\n}\n", begin)]


@pytest.fixture(scope="module")
def claimed() -> CudaSource:
    return made("ticket")


@pytest.mark.parametrize("call", CALLS)
def test_what_the_loader_looks_up_is_told(claimed: CudaSource, call: str) -> None:
    load, body = (function(claimed.text, f"{what}_{call}") for what in ("load", "body"))
    assert load.index("= begin_here[a + 1];") < load.index("worker.forward_tile(told0, told1);")
    assert load.index("worker.forward_tile(") < load.index("worker.panels(")
    assert load.count("_here[") == 3  # each is looked up once
    assert "worker.pipeline.tile_value(0)" in body and "args.begin[" not in body


@pytest.mark.parametrize("call", CALLS)
def test_a_messenger_notifies_where_tiles_follow_one_another(
    claimed: CudaSource, call: str
) -> None:
    assert (
        function(claimed.text, f"task_{call}").count("et::notify_async(") == 1
    )  # also of two events
    assert "et::ev_notify(" in function(claimed.text, "task_router")
    assert claimed.threads == made("static").threads + 32


@pytest.mark.parametrize("schedule, tokens, debug", (
    ("static", 128, False), ("ticket", 1, False), ("ticket", 128, True)))
def test_there_is_none_where_nobody_goes_on_meanwhile(
    schedule: str, tokens: int, debug: bool
) -> None:
    """With static tiles, with one row, whose products have no bringers, and in debug builds, which
    count cells as soon as the tasks are over and look places up where they check them."""
    text = made(schedule, tokens, debug).text
    assert "notify_async" not in text and "notifier" not in text
    if debug:
        assert "tile_value(" not in text


def test_the_scale_of_gathered_columns_is_found_while_they_come(claimed: CudaSource) -> None:
    body = function(claimed.text, "body_experts_gate_up")
    begin, scale, product = (
        body.index(f"et::{x}<") for x in ("begin_activation_load", "lane_sum", "wide_gemm")
    )
    assert begin < scale < product
