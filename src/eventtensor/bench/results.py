"""Results as rows: a name, the parameters, mean, median and percentiles of what was measured."""

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


def row(name: str, values: Sequence[float], unit: str, **parameters: Any) -> Row:
    """Of no values at all there is only their number."""
    if not values:
        return {"name": name, **parameters, "samples": 0, "unit": unit}
    ends = np.percentile(values, (50, 10, 90, 99))
    found = dict(zip(("median", "p10", "p90", "p99"), ends, strict=True))
    found["mean"] = np.mean(values)
    rounded = {k: float(f"{v:.5g}") for k, v in found.items()}
    return {"name": name, **parameters, **rounded, "samples": len(values), "unit": unit}


def times(name: str, spans: Sequence[Span], **parameters: Any) -> list[Row]:
    """What users of a server look at, in ms: until the first token, between tokens on average, from
    each output to the next, and until the last token."""
    each = [s.each for s in spans if s.tokens > 1]
    return [row(f"{name}_{what}", [1e3 * v for v in values], "ms", **parameters)
            for what, values in (("ttft", [s.first for s in spans]), ("tpot", each),
                                 ("itl", [g for s in spans for g in s.gaps]),
                                 ("e2e", [s.last for s in spans]))]


class Span:
    """When the outputs of one request came, in seconds from when it was sent; `tokens` in all."""

    def __init__(self, sent: float, came: Sequence[float], tokens: int) -> None:
        self.tokens, self._came = tokens, [t - sent for t in came]

    @property
    def first(self) -> float:
        return self._came[0]

    @property
    def last(self) -> float:
        return self._came[-1]

    @property
    def each(self) -> float:
        return (self.last - self.first) / (self.tokens - 1)

    @property
    def gaps(self) -> list[float]:
        return np.diff(self._came).tolist()


def machine() -> Row:
    """What every row carries."""
    command = ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        gpu = done.stdout.partition("\n")[0].strip()
    except (OSError, subprocess.SubprocessError):
        gpu = ""
    return {"gpu": gpu or "none",
            "cpu": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores",
            "versions": {"python": platform.python_version(), "numpy": np.__version__}}


def write(rows: Sequence[Row], path: Path) -> None:
    facts = machine()
    lines = ",\n".join(json.dumps(r | facts) for r in rows)
    path.write_text(f"[\n{lines}\n]\n")


def prompts(count: int, length: int, vocab: int, seed: int = 0) -> list[list[int]]:
    """Random tokens. No two begin alike, so that nothing is reused."""
    rng = np.random.default_rng(seed)
    return [[int(t) for t in some] for some in rng.integers(0, vocab, (count, length))]
