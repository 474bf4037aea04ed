"""The emulator finds what is broken: each case takes something out of the device code, and some
launch then gives wrong numbers, does what no thread may do, or does not go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from emulator.broken import BROKEN

HERE = Path(__file__).parent
CRASHES = tuple(-s for s in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT))


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_broken_is_found(what: str, tmp_path: Path) -> None:
    command = [sys.executable, str(HERE / "broken.py"), what, str(tmp_path / "device")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, *CRASHES), done.stdout + done.stderr
