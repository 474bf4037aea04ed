"""Runs what could hang, or end its process, in a process of its own; its answers are JSON lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest


def answers(
    command: Sequence[str], seconds: float, env: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """What the command says on stdout; the test fails if it fails or does not end in time."""
    given = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **(env or {})}
    try:
        done = subprocess.run(command, env=given, capture_output=True, text=True,
                              timeout=seconds, check=False)
    except subprocess.TimeoutExpired as late:
        pytest.fail(f"{' '.join(command)} did not end in {seconds} s: {late.stdout!r}")
    if done.returncode != 0:
        said = f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        pytest.fail(f"{' '.join(command)} answers {done.returncode}:\n{said}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
