"""Kernels for few tokens: all products take the weight stream, as those for many tokens do."""

from __future__ import annotations

import pytest

import eventtensor as et
from eventtensor.codegen.cuda.kernel import generate
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.ir.plan import HandoffKind, Plan
from eventtensor.llm.model.decoder_tasks import Weights
from eventtensor.llm.model.llama import llama
from eventtensor.llm.model.model_presets import PRESETS


def plan_of(name: str, tokens: int) -> Plan:
    state = run_passes(llama(PRESETS[name], Weights("cuda", et.bf16), tokens=tokens),
                       Options(target="cuda"))
    assert state.plan is not None and state.report is not None and state.report.ok
    return state.plan


@pytest.mark.parametrize("name", ["llama-3.2-1b", "qwen3-8b"])
def test_all_products_have_a_stream_and_take_their_x_by_lines(name: str) -> None:
    plan = plan_of(name, 16)
    products = {"qkv_proj", "out_proj", "gate_up", "down_proj", "head_2"}
    assert {s.call for s in plan.streams if s.is_b_streamed} == products
    flagged = {t for h in plan.handoffs if h.kind is HandoffKind.tagged for t in h.tensors}
    assert not flagged & {"mixed", "act", "x_attn", "x_mlp"}, "lines of x have none"


@pytest.mark.parametrize("tokens, widest", [(8, "N16"), (32, "N64"), (128, "N128")])
def test_no_pass_is_compiled_that_is_wider_than_a_step(tokens: int, widest: str) -> None:
    """A step has up to tokens - 1 rows more than those that get a token."""
    text = generate(plan_of("llama-3.2-1b", tokens)).text
    body = text[text.index("bool body_gate_up(") :].split("\n}\n")[0]
    assert f"et::{widest}," in body
