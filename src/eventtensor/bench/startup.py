"""From the start of a process to its first token, with caches that are empty and with full ones."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from ..errors import EngineStopped
from .rows import Row, row

_CHILD = """
import json, os, sys, time
began = time.perf_counter()
options = json.loads(sys.argv[1])
os.environ["ET_CACHE_DIR"] = options.pop("home")
from eventtensor import LLM, SamplingParams
imported = time.perf_counter()
with LLM(options.pop("model"), **options) as llm:
    ready = time.perf_counter()
    llm.generate([[5, 6, 7]], SamplingParams(temperature=0, max_tokens=1, ignore_eos=True))
    print(json.dumps([imported - began, ready - began, time.perf_counter() - began]))
"""


def startup(model: str, options: dict[str, object], runs: int) -> list[Row]:
    """`cold` packs the weights and compiles, once; `warm` finds both, `runs` times."""
    with tempfile.TemporaryDirectory() as home:
        cold = [_child(model, options, home)]
        warm = [_child(model, options, home) for _ in range(runs)]
    return [*_rows("cold", cold, model, options), *_rows("warm", warm, model, options)]


def _rows(
    which: str, found: Sequence[Sequence[float]], model: str, options: dict[str, object]
) -> list[Row]:
    names = ("imported", "ready", "first_token")
    return [row(f"startup_{name}", [seconds[k] for seconds in found], "s", model=model,
                caches=which, **options) for k, name in enumerate(names)]


def _child(model: str, options: dict[str, object], home: str) -> list[float]:
    command = [sys.executable, "-c", _CHILD, json.dumps({"model": model, "home": home, **options})]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise EngineStopped(f"the model does not start: {done.stderr.strip()[-400:]}")
    found: list[float] = json.loads(done.stdout)
    return found
