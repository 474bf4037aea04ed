"""What nvcc makes of a kernel's text, before registers are given out."""

from __future__ import annotations

import subprocess
from pathlib import Path

from eventtensor.runtime.build import DEVICE


def ptx_of(text: str, folder: Path) -> str:
    source, out = folder / "kernel.cu", folder / "kernel.ptx"
    source.write_text(text)
    done = subprocess.run(
        ["nvcc", "-std=c++17", "-arch=compute_90a", "--expt-relaxed-constexpr", "-ptx",
         f"-I{DEVICE}", "-o", str(out), str(source)],
        capture_output=True, text=True, check=False,
    )
    assert done.returncode == 0, done.stderr
    return out.read_text()
