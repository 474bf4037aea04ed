"""While routing is decided, the producer warp prefetches weights that the next layer surely needs.
No result depends on it."""

from __future__ import annotations

import pytest
from models.moe_block_program import (
    Drawn,
    arguments,
    config,
    dims,
    moe_block_program,
    rows_for,
    unit_router,
)
from support.emulated import emulated_kernel

import eventtensor as et
from eventtensor.codegen.cuda.kernel import generate
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.ir.plan import Plan
from eventtensor.llm.model.decoder_tasks import Weights
from eventtensor.llm.model.llama import llama
from eventtensor.llm.model.model_presets import PRESETS
from eventtensor.schedule import hints


def plan_of(program: et.Program, **options: object) -> Plan:
    plan = run_passes(program, Options(target="cuda", **options)).plan
    assert plan is not None
    return plan


def model(name: str, tokens: int) -> et.Program:
    return llama(PRESETS[name], Weights("cuda", et.bf16), tokens=tokens)


@pytest.mark.parametrize("tokens", [1, 128])
def test_weights_of_the_next_layer_are_asked_for_while_routing_is_decided(tokens: int) -> None:
    plan = plan_of(model("qwen3-30b-a3b", tokens), prefetch=1 << 18)
    assert [(h.call, h.tensor, h.bytes) for h in plan.hints] == [
        ("experts_gate_up", "w_qkv", 5120 * 2048 * 2), ("experts_gate_up", "w_o", 2048 * 4096 * 2)]
    text = generate(plan).text
    feed = text.split("bool feed_experts_gate_up")[1].split("bool feed_experts_down")[0]
    asked = feed.index("worker.hint<0>(args.w_qkv + (l * 10485760 + 10485760)")
    wait = feed.index("et::find_best<" if tokens == 1 else "ev_wait")
    assert asked < feed.index("worker.hint<1>(args.w_o") < wait and "l + 1 < 48" in feed
    assert text.count("worker.hint<") == 2 and "#define ET_HINTS 1" in text


def test_nothing_is_asked_for_where_nobody_wants_it_or_nothing_waits() -> None:
    for program, options in ((model("qwen3-30b-a3b", 1), {}),
                             (model("llama-3.2-1b", 1), {"prefetch": 1 << 18}),
                             (model("qwen3-30b-a3b", 128), {"prefetch": 1 << 18, "stream": False})):
        plan = plan_of(program, **options)
        assert not plan.hints and "worker.hint<" not in generate(plan).text


def test_no_bit_depends_on_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hints, "LEAST", 1)
    drawn, rows, found = Drawn(config(), unit_router()), rows_for([[9, 2, 5, 11], [1, 2, 3]]), []
    for prefetch in (0, 1 << 16):
        plan = plan_of(moe_block_program(config(), "cuda", et.bf16), prefetch=prefetch)
        assert [h.tensor for h in plan.hints] == (["w_router"] if prefetch else [])
        with emulated_kernel(plan, 3) as kernel:
            arrays = arguments(drawn, rows, "cuda", et.bf16)
            kernel.launch(dims(len(rows)), arrays)
            found.append(arrays["result"].tobytes())
    assert found[0] == found[1]
