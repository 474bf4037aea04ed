"""compute-sanitizer's memcheck finds nothing in the examples."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.gpu.arrays import EXAMPLES
from tests.gpu.child import answers
from tests.gpu.variants import SCHEDULES

ONCE = Path(__file__).parent / "examples_once.py"
LIMIT_S = 110
FOUND = "99"  # the exit status for errors that memcheck saw


@pytest.mark.limit(LIMIT_S + 10)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", EXAMPLES)
def test_memcheck_is_clean(name: str, schedule: str) -> None:
    tool = shutil.which("compute-sanitizer") or shutil.which(
        "compute-sanitizer", path="/usr/local/cuda/bin"
    )
    if tool is None:
        pytest.skip("compute-sanitizer is neither on PATH nor in /usr/local/cuda/bin")
    command = [tool, "--tool", "memcheck", "--error-exitcode", FOUND, sys.executable, str(ONCE)]
    # Checked code is slow: a wait that takes long is not a stuck one here.
    answers([*command, name, schedule], seconds=LIMIT_S, env={"ET_WAIT_LIMIT_S": "120"})
