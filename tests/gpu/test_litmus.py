"""The fences between the generic and the async proxy, tried millions of times with the back end's
own names. Without a fence nothing is promised: those counts are shown (-rP), not asserted."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import eventtensor
from tests.gpu.child import answers

HERE = Path(__file__).parent / "litmus"
DEVICE = Path(eventtensor.__file__).parent / "device"
FLAGS = ("-std=c++17", "-O3", "--expt-relaxed-constexpr",
         "-gencode=arch=compute_90a,code=sm_90a", f"-I{DEVICE}")


@pytest.mark.limit(120)
@pytest.mark.parametrize(("name", "ways"), (("slot_reuse", 2), ("fresh_bulk", 1)))
def test_a_fenced_hand_over_between_proxies_shows_no_stale_value(
    name: str, ways: int, tmp_path: Path
) -> None:
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if nvcc is None:
        pytest.skip("nvcc is neither on PATH nor in /usr/local/cuda/bin")
    program = tmp_path / name
    subprocess.run([nvcc, *FLAGS, "-o", str(program), str(HERE / f"{name}.cu")], check=True,
                   timeout=60)
    found = answers([str(program)], seconds=60)
    for row in found:
        print(row)
    fenced = [row for row in found if row["fence"]]
    assert len(fenced) == ways
    for row in fenced:
        assert row["rounds"] >= 2_000_000
        assert row["wrong"] == 0 and row["late"] == 0
