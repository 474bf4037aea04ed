"""The emulator finds what is broken: each case takes something out of the device code, and some
launch then gives wrong numbers, does what no thread may do, or does not go on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.emulator.broken import BROKEN, NOT_FOUND, WHOLE
from tests.support.child_process import child_environment

HERE = Path(__file__).parent
CRASHES = tuple(-s for s in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT))
Asked = Callable[[str, Path], int]


@pytest.fixture(scope="module")
def ended() -> Iterator[Asked]:
    """How the process of a case ends, all forked from one that has imported and planned."""
    command = [sys.executable, "-m", "tests.emulator.broken"]
    with subprocess.Popen(
        command,
        env=child_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as warm:
        assert warm.stdin is not None and warm.stdout is not None
        given, told = warm.stdin, warm.stdout

        def ask(what: str, folder: Path) -> int:
            given.write(json.dumps([what, str(folder)]) + "\n")
            return int(told.readline())

        yield ask
        given.close()


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_broken_is_found(what: str, ended: Asked, tmp_path: Path) -> None:
    status = ended(what, tmp_path)
    assert status in (0, *CRASHES), (status, (tmp_path / "log").read_text())


def test_what_is_whole_is_not_found(ended: Asked, tmp_path: Path) -> None:
    assert ended(WHOLE, tmp_path) == NOT_FOUND
