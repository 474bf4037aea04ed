"""Tests that need an NVIDIA GPU: skipped, with this reason, where there is none.

Every test has a time limit, and ET_TEST_LOG names a file that gets each result at once, so that a
run that is ended early still tells what it has found."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

# Before NumPy: the threads of its BLAS in every process of a run are in each other's way.
os.environ["OMP_NUM_THREADS"] = "1"

from tests.backend.conftest import lab
from tests.gpu.stored import FOLDER

__all__ = ["lab"]

HERE = Path(__file__).parent
LIMIT_S = 60
GRACE_S = 15  # more for a test that does not come back to Python; then its process ends
STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"limit(seconds): what a test may take, else {LIMIT_S}")
    config.stash[STDERR] = os.dup(2)  # a test's own goes where nobody reads when a process ends


def _why_not() -> str:
    """Nothing if there is a GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA GPU: libcuda.so.1 is not there"
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return "no NVIDIA GPU: the driver does not start"
    return "" if count.value > 0 else "no NVIDIA GPU: the driver finds no device"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    why = _why_not()
    if why:
        for item in items:
            if item.path.is_relative_to(HERE):
                item.add_marker(pytest.mark.skip(reason=why))


# ---- one cache for all processes of a run --------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Many tests launch the same kernels: what one process has compiled the others find."""
    with pytest.MonkeyPatch.context() as patch:
        if "PYTEST_XDIST_WORKER" in os.environ:
            run = tmp_path_factory.getbasetemp().parent
            patch.setenv("ET_CACHE_DIR", str(run / "gpu_cache"))
            patch.setenv(FOLDER, str(run / "gpu_stored"))
        yield


# ---- limits and the log --------------------------------------------------------------------


@contextmanager
def _limited(item: pytest.Item) -> Iterator[None]:
    """What takes too long fails. What hangs in the driver or a compiler ends its process: xdist
    then names the test and goes on with another process."""
    mark = item.get_closest_marker("limit")
    seconds = mark.args[0] if mark else LIMIT_S

    def late(*_: object) -> None:
        pytest.fail(f"{item.nodeid} takes longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(seconds + GRACE_S, exit=True, file=item.config.stash[STDERR])
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    with _limited(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with _limited(item):
        return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Written by the process that ran the test; by xdist's own ("???") if that one has ended."""
    path = os.environ.get("ET_TEST_LOG")
    theirs = hasattr(report, "node") and report.when != "???"
    if path is None or theirs or (report.passed and report.when != "call"):
        return
    why = "" if report.passed else f"{report.longreprtext}\n"
    with open(path, "a") as log:
        log.write(f"{report.outcome} {report.duration:.1f} {report.nodeid}\n{why}")
