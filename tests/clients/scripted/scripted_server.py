"""A server process whose model says what rules say: python -m
tests.clients.scripted.scripted_server NAME [PORT]."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from eventtensor.llm.engine import llm as llm_module
from eventtensor.llm.model.attention_block import page_tokens
from eventtensor.llm.model.model_config import ModelConfig
from eventtensor.llm.runner.batch_arrays import RunnerLimits
from eventtensor.llm.serve.app import AppOptions
from eventtensor.llm.serve.server import ServeOptions, serve
from eventtensor.llm.weights.model_source import open_model
from tests.clients.scripted.scripted_rules import RULES
from tests.clients.scripted.scripted_runner import ScriptedRunner

TEMPLATE = Path(__file__).parent / "scripted_template.jinja"
CONTEXT = 8192


def scripted_llm() -> llm_module.LLM:
    """With the tokenizer of SmolLM2, whose weights nobody reads."""
    model = open_model("smollm2")
    tokenizer = model.tokenizer
    assert tokenizer is not None
    tokenizer.template = TEMPLATE.read_text()

    def runner(
        config: ModelConfig,
        weights: Any,
        *,
        pages: int,
        positions: int,
        requests: int,
        rows: int,
        **_: Any,
    ) -> ScriptedRunner:
        sizes = RunnerLimits(
            config.vocab,
            rows,
            min(rows, requests),
            requests,
            positions,
            pages,
            page_tokens(config),
            1,
        )
        return ScriptedRunner(sizes, tokenizer, RULES)

    weights = SimpleNamespace(arrays={}, close=lambda: None)
    llm_module.Runner = runner  # for good: the process has no other
    llm_module.load_weights = lambda *_: weights
    return llm_module.LLM(model, target="cpu", max_model_len=CONTEXT, max_waiting=256)


def main(name: str, port: str = "0") -> None:
    serve(scripted_llm(), ServeOptions(AppOptions(name), port=int(port)))


if __name__ == "__main__":
    main(*sys.argv[1:])
