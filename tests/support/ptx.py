"""What a compiler makes of a kernel's text, before registers are given out."""

from __future__ import annotations

import subprocess
from pathlib import Path

from eventtensor.runtime.cpp_build import DEVICE
from eventtensor.runtime.cuda.cuda_build import FLAGS
from eventtensor.runtime.cuda.driver import bindings


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


def nvrtc_ptx(text: str, architecture: str) -> str:
    """The PTX of a kernel that NVRTC and its assembler take for an architecture."""
    nvrtc = bindings("nvrtc")
    _, program = nvrtc.nvrtcCreateProgram(text.encode(), b"kernel.cu", 0, [], [])
    options = [f.encode() for f in (*FLAGS, f"-arch={architecture}")]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = bytes(size)
    nvrtc.nvrtcGetProgramLog(program, log)
    assert int(status) == 0, log.decode(errors="replace")
    _, size = nvrtc.nvrtcGetPTXSize(program)
    ptx = bytes(size)
    nvrtc.nvrtcGetPTX(program, ptx)
    nvrtc.nvrtcDestroyProgram(program)
    return ptx.decode()
