"""Runs what could hang, or end its process, in a process of its own; its answers are JSON lines."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.support.child_process import child_environment


def answers(
    command: Sequence[str], seconds: float, env: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """What the command says on stdout; the test fails if it fails or does not end in time."""
    given = child_environment(env)
    try:
        done = subprocess.run(command, env=given, capture_output=True, text=True,
                              timeout=seconds, check=False)
    except subprocess.TimeoutExpired as late:
        pytest.fail(f"{' '.join(command)} did not end in {seconds} s: {late.stdout!r}")
    if done.returncode != 0:
        said = f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        pytest.fail(f"{' '.join(command)} answers {done.returncode}:\n{said}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
