"""Results of measurements as rows of JSON.

A row has a name, parameters, and the mean, median and percentiles of its values. Nothing is
measured here."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

Row = dict[str, Any]


def make_row(name: str, values: Sequence[float], unit: str, **parameters: Any) -> Row:
    """Without values a row has only their number, 0."""
    if not values:
        return {"name": name, **parameters, "samples": 0, "unit": unit}
    ends = np.percentile(values, (50, 10, 90, 99))
    found = dict(zip(("median", "p10", "p90", "p99"), ends, strict=True))
    found["mean"] = np.mean(values)
    rounded = {k: float(f"{v:.5g}") for k, v in found.items()}
    return {"name": name, **parameters, **rounded, "samples": len(values), "unit": unit}


def latency_rows(name: str, timings: Sequence[RequestTiming], **parameters: Any) -> list[Row]:
    """Four rows, in ms: time to the first token (ttft), mean time per output token (tpot), time
    from each output to the next (itl), and time to the last token (e2e)."""
    each = [t.per_token_s for t in timings if t.num_tokens > 1]
    return [make_row(f"{name}_{what}", [1e3 * v for v in values], "ms", **parameters)
            for what, values in (("ttft", [t.to_first_s for t in timings]), ("tpot", each),
                                 ("itl", [gap for t in timings for gap in t.gaps_s]),
                                 ("e2e", [t.to_last_s for t in timings]))]


class RequestTiming:
    """The times at which the outputs of one request arrived, in seconds after it was sent."""

    def __init__(self, sent_at: float, arrivals: Sequence[float], num_tokens: int) -> None:
        self.num_tokens, self._arrivals_s = num_tokens, [t - sent_at for t in arrivals]

    @property
    def to_first_s(self) -> float:
        return self._arrivals_s[0]

    @property
    def to_last_s(self) -> float:
        return self._arrivals_s[-1]

    @property
    def per_token_s(self) -> float:
        return (self.to_last_s - self.to_first_s) / (self.num_tokens - 1)

    @property
    def gaps_s(self) -> list[float]:
        return np.diff(self._arrivals_s).tolist()


def machine_row() -> Row:
    """The fields that every row has: GPU, CPU and versions."""
    command = ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        gpu = done.stdout.partition("\n")[0].strip()
    except (OSError, subprocess.SubprocessError):
        gpu = ""
    return {"gpu": gpu or "none",
            "cpu": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores",
            "versions": {"python": platform.python_version(), "numpy": np.__version__}}


def write_rows(rows: Sequence[Row], path: Path) -> None:
    facts = machine_row()
    lines = ",\n".join(json.dumps(r | facts) for r in rows)
    path.write_text(f"[\n{lines}\n]\n")


def random_prompts(count: int, length: int, vocab: int, seed: int = 0) -> list[list[int]]:
    """Random tokens. No two prompts share a prefix, so the prefix cache finds nothing."""
    rng = np.random.default_rng(seed)
    return [[int(t) for t in some] for some in rng.integers(0, vocab, (count, length))]
