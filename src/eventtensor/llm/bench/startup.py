"""The time from the start of a process to its first token: with empty caches, with full caches,
and with an artifact. Each run has a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from ...errors import EngineStopped
from .results import Row, make_row

_CHILD = """
import json, os, sys, time
began = time.perf_counter()
options = json.loads(sys.argv[1])
os.environ["ET_CACHE_DIR"] = os.environ["CUDA_CACHE_PATH"] = options.pop("home")
from eventtensor import LLM, SamplingParams
imported = time.perf_counter()
with LLM(options.pop("model"), **options) as llm:
    llm.engine.runner.ready(1)
    ready = time.perf_counter()
    llm.generate([[5, 6, 7]], SamplingParams(temperature=0, max_tokens=1, ignore_eos=True))
    print(json.dumps([imported - began, llm.weight_load_s, ready - imported - llm.weight_load_s,
                      ready - began, time.perf_counter() - began]))
"""


def measure_startup(model: str, options: dict[str, object], runs: int) -> list[Row]:
    """`cold` packs the weights and compiles, once; `warm` finds both in caches, `runs` times;
    `artifact` also finds the proof and the plan. The phase `engine` begins after the imports and
    ends when all kernels are ready, without the time for the weights."""
    with tempfile.TemporaryDirectory() as home:
        folder = f"{home}/artifact"
        found = {"cold": [_run_child(model, options, home)],
                 "warm": [_run_child(model, options, home) for _ in range(runs)]}
        _compile(model, options, folder)
        known = options | {"artifact": folder}
        found["artifact"] = [_run_child(model, known, home) for _ in range(runs)]
    return [r for which, seconds in found.items() for r in _rows(which, seconds, model, options)]


def _rows(
    which: str, found: Sequence[Sequence[float]], model: str, options: dict[str, object]
) -> list[Row]:
    names = ("imported", "weights", "engine", "ready", "first_token")
    return [make_row(f"startup_{name}", [seconds[k] for seconds in found], "s", model=model,
                     caches=which, **options) for k, name in enumerate(names)]


def _compile(model: str, options: dict[str, object], folder: str) -> None:
    words = [f"--{name}={options[name]}" for name in ("target", "dtype") if name in options]
    _run([sys.executable, "-m", "eventtensor.cli", "compile", model, "-o", folder, *words])


def _run_child(model: str, options: dict[str, object], home: str) -> list[float]:
    command = [sys.executable, "-c", _CHILD, json.dumps({"model": model, "home": home, **options})]
    found: list[float] = json.loads(_run(command))
    return found


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise EngineStopped(f"the model does not start: {done.stderr.strip()[-400:]}")
    return done.stdout
