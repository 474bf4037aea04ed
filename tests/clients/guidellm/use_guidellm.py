"""GuideLLM."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from features import MODEL, SCRIPTED, feature, main

GUIDELLM = str(Path(sys.executable).parent / "guidellm")
REQUESTS = 4


def measure(form):
    """All requests of a run succeed, and their tokens and times are known."""
    data, report = Path("prompts.jsonl"), Path(f"{form}.json")
    data.write_text("".join(json.dumps({"prompt": f"Bob is 30. {k}"}) + "\n" for k in range(4)))
    backend = {"kind": "openai_http", "target": SCRIPTED, "model": MODEL}
    if form != "default":
        backend["request_format"] = form
        report = Path("completions.json")
    done = subprocess.run(
        [GUIDELLM, "run", "--backend", ",".join(f"{k}={v}" for k, v in backend.items()),
         "--profile", "kind=concurrent,streams=2", "--constraint",
         f"kind=max_requests,count={REQUESTS}", "--data", f"kind=json_file,path={data}",
         "--output", f"kind=json,path={report}", "--disable-console"],
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    (found,) = json.loads(report.read_text())["benchmarks"]
    metrics = found["metrics"]
    assert metrics["request_totals"]["successful"] == REQUESTS, metrics["request_totals"]
    for name in ("time_to_first_token_ms", "inter_token_latency_ms", "output_token_count"):
        assert metrics[name]["successful"]["mean"] > 0, name


@feature("chat, the default format")
def _():
    measure("default")


@feature("completions")
def _():
    measure("/v1/completions")


main()
