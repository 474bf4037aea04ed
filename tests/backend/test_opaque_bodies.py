"""How many bodies of a fixed set of programs are text instead of kernel IR, by reason. The numbers
may only fall: lower them here when they do."""

from __future__ import annotations

from collections import Counter

import pytest

import eventtensor as et
from eventtensor.codegen.cpp.kernel import PLAIN, KernelWriter
from eventtensor.codegen.cuda.kernel import BlockWriter
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.kernel_ir.body_record import Opaque, OpaqueReason
from eventtensor.llm.model.decoder_tasks import Weights
from eventtensor.llm.model.llama import llama
from eventtensor.llm.model.model_presets import PRESETS
from eventtensor.targets.devices import DEFAULT_DEVICE
from examples import chain, mlp, row_sum
from tests.support import streams


def model(preset: str, target: str, tokens: int) -> et.Program:
    return llama(PRESETS[preset], Weights(target, et.bf16), tokens=tokens, sampling=True)


def programs(target: str) -> list[et.Program]:
    made = [row_sum.row_sum(), chain.chain(), chain.chain(packed=True), mlp.mlp()]
    made += [make() for make, _ in streams.PROGRAMS.values()]
    return (
        made
        + [model("tiny-qwen3", target, n) for n in (1, 16)]
        + [model("tiny-qwen3-moe", target, 16)]
    )


OPTIONS = {"cpu": Options("cpu"), "cuda": Options("cuda", device="h200")}


def opaque(target: str) -> tuple[Counter[OpaqueReason], int]:
    found, total = Counter[OpaqueReason](), 0
    for program in programs(target):
        plan = run_passes(program, OPTIONS[target]).plan
        assert plan is not None
        writer = (
            KernelWriter(plan, PLAIN)
            if target == "cpu"
            else BlockWriter(plan, DEFAULT_DEVICE, PLAIN)
        )
        writer.text()
        total += len(writer.bodies)
        found.update(b.code.reason for b in writer.bodies.values() if isinstance(b.code, Opaque))
    return found, total


MOST = {
    "cpu": {OpaqueReason.product: 43, OpaqueReason.custom: 3, OpaqueReason.statement: 2},
    "cuda": {OpaqueReason.product: 43, OpaqueReason.custom: 13, OpaqueReason.statement: 2},
}


@pytest.mark.parametrize("target", MOST)
def test_no_more_bodies_are_text_than_before(target: str) -> None:
    found, total = opaque(target)
    print(f"{target}: of {total} bodies {found.total()} are text: {dict(found)}")
    assert found == Counter(MOST[target])
