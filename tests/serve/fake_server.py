"""A server process with a runner in Python, which starts fast and is as slow or as broken as a test
wants: python -m tests.serve.fake_server FOLDER '{"step_s": 0.01, ..}'."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import fields
from inspect import signature
from typing import Any

from eventtensor.errors import EventTensorError
from eventtensor.llm.engine import llm as llm_module
from eventtensor.llm.model.model_config import ModelConfig
from eventtensor.llm.runner.batch_arrays import RunnerLimits
from eventtensor.llm.serve.app import AppOptions
from eventtensor.llm.serve.server import ServeOptions, serve
from tests.engine.fake_runner import FakeRunner

PAGE = 8


def fake_llm(
    folder: str, max_model_len: int = 256, max_num_seqs: int = 4, max_waiting: int = 8,
    pages: int = 64, step_s: float = 0.0, stuck_at: int = 0, stuck_s: float = 0.0,
    fail_from: int = 0, step_limit_s: float = 60.0,
) -> llm_module.LLM:
    """Steps take `step_s`, launch `stuck_at` takes `stuck_s`; from `fail_from` on all fail."""

    def before(launch: int) -> None:
        time.sleep(stuck_s if launch == stuck_at else step_s)
        if fail_from and launch >= fail_from:
            raise RuntimeError("the device is gone")

    def runner(config: ModelConfig, weights: Any, *, rows: int, **_: Any) -> FakeRunner:
        sizes = RunnerLimits(config.vocab, rows, min(rows, max_num_seqs), max_num_seqs,
                             max_model_len, pages, PAGE, 2)
        return FakeRunner(sizes, before)

    llm_module.Runner = runner  # for good: the process has no other, and failures make new ones
    return llm_module.LLM(folder, target="cpu", dtype="f32", max_model_len=max_model_len,
                          max_num_seqs=max_num_seqs, max_waiting=max_waiting,
                          step_limit_s=step_limit_s)


def taken(kind: type, given: dict[str, Any]) -> dict[str, Any]:
    names = {f.name for f in fields(kind)} & given.keys()
    return {k: tuple(v) if isinstance(v := given[k], list) else v for k in names}


def main(folder: str, options: str) -> None:
    given = json.loads(options)
    app = AppOptions("tiny", **taken(AppOptions, {"max_body_bytes": 1 << 20, "hosts": ()} | given))
    more = taken(ServeOptions, {"port": 0} | given)
    names = signature(fake_llm).parameters.keys() & given.keys()
    try:
        serve(fake_llm(folder, **{k: given[k] for k in names}), ServeOptions(app, **more))
    except EventTensorError as e:
        sys.exit(f"{e.code}: {e.message}")


if __name__ == "__main__":
    main(*sys.argv[1:])
