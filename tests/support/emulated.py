"""Generated CUDA on the host: the real run time, on a driver whose launches run the kernel in the
emulator of tests/emulator. Blocks are threads of the host, their threads fibers."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from eventtensor.config import Environment, Options, environment
from eventtensor.ir.plan import Plan
from eventtensor.runtime.cpp_build import DEVICE
from eventtensor.runtime.cuda import cuda_kernel
from eventtensor.runtime.cuda.cuda_build import Cubin, Usage
from eventtensor.runtime.headers import own_digest
from tests.support.fake_driver import FakeDriver, Launched, installed

EMULATOR = Path(__file__).parents[1] / "emulator"
SOURCES, OBJECT = sorted(EMULATOR.glob("*.cpp")), "emulator.o"
# As IEEE as the device: no contraction, and integers that wrap.
FLAGS = ("-std=c++17", "-O1", "-ffp-contract=off", "-fwrapv", "-fno-strict-aliasing", "-fPIC",
         "-fvisibility=hidden", "-pthread", "-w")
DYNAMIC = re.compile(r"extern __shared__ __align__\((\d+)\) char near\[\];")
MAPS = "const __grid_constant__ Maps maps"
GUARD, GUARD_BYTE = 256, 0xA5


class EmulatedFault(AssertionError):
    """The kernel did what no thread of a GPU may do, or it does not go on."""


class EmulatedDriver(FakeDriver):
    """Memory as a GPU aligns it, with bytes on both sides that nobody may change."""

    def _cuMemAlloc_v2(self, out: Any, size: int) -> None:
        memory = np.full(size + 3 * GUARD, GUARD_BYTE, np.uint8)
        at = -(-memory.ctypes.data // GUARD) * GUARD + GUARD
        ctypes.memset(at, 0xAA, size)
        self.memory[at] = memory[at - memory.ctypes.data - GUARD :][: size + 2 * GUARD]
        out._obj.value = at

    def check_guards(self) -> None:
        for memory in self.memory.values():
            if (memory[:GUARD] != GUARD_BYTE).any() or (memory[-GUARD:] != GUARD_BYTE).any():
                raise EmulatedFault("the kernel has written outside device memory")


# ---- the kernel as a library -----------------------------------------------------------------


@cache
def prepared(cache_dir: Path) -> Path:
    """A folder with what all kernels share of the emulator: its first header precompiled, and what
    is no header as an object."""
    texts = (p.read_bytes() for p in (*sorted(EMULATOR.glob("*.h")), *SOURCES))
    folder = cache_dir / f"emulated_{sha256(b''.join(texts)).hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "words.h.gch").exists():
        _compile(folder / "words.h.gch", "-x", "c++-header", str(EMULATOR / "words.h"))
    if not (folder / OBJECT).exists():
        _compile(folder / OBJECT, "-O2", "-r", *map(str, SOURCES))
    return folder


def library(text: str, device: Path = DEVICE) -> ctypes.CDLL:
    """The kernel and the emulator, compiled once for each source."""
    (align,) = DYNAMIC.findall(text)
    source = DYNAMIC.sub("char* const near = emu::block->near();", text)
    source = source.replace(MAPS, "const Maps& maps")  # a copy might not be aligned
    mapped = ", *static_cast<const Maps*>(maps)" if MAPS in text else ""
    source += f"\n#define NEAR_ALIGN {align}\n"
    source += f'#define CALL_KERNEL et_kernel(*shared, *launch{mapped})\n#include "launch.h"\n'
    folder = prepared(environment().cache_dir)
    folders = (device, EMULATOR / "cuda")
    headers = b"".join(p.read_bytes() for f in folders for p in sorted(f.rglob("*.*h")))
    headers += own_digest(source).encode()
    out = folder / f"{sha256(source.encode() + headers).hexdigest()[:24]}.so"
    if not out.exists():
        code = out.with_suffix(".cpp")
        code.write_text(source)
        _compile(out, "-shared", "-include", "words.h", "-I", str(folder), "-I", str(EMULATOR),
                 "-I", str(device), str(code), str(folder / OBJECT))
    return ctypes.CDLL(str(out))


def _compile(out: Path, *words: str) -> None:
    """Appears whole or not at all: other processes may want the same."""
    fresh = out.with_name(f"{os.getpid()}_{out.name}")
    command = [environment().cxx, *FLAGS, *words, "-o", str(fresh)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    fresh.replace(out)


class Emulation:
    """What a launch does: it runs the kernel of `text`, with another order each time."""

    def __init__(
        self, text: str, driver: EmulatedDriver, seed: int, still_s: float, device: Path
    ) -> None:
        self.run = library(text, device).emu_launch
        self.driver, self.seed, self.still_ns = driver, seed, int(still_s * 1e9)

    def __call__(self, launched: Launched) -> None:
        self.seed += 2  # its parity decides how late copies land
        shared = np.frombuffer(launched.shared.tobytes(), np.int64).copy()
        words, maps = np.array(launched.words, np.int64), launched.maps
        said, config = ctypes.create_string_buffer(512), launched.config
        wrong = self.run(
            ctypes.c_void_p(shared.ctypes.data), ctypes.c_void_p(words.ctypes.data),
            ctypes.c_void_p(maps), config.grid_x, config.block_x,
            ctypes.c_int64(config.shared_bytes), ctypes.c_uint64(self.seed),
            ctypes.c_int64(self.still_ns), said, len(said),
        )
        if wrong:
            raise EmulatedFault(said.value.decode())
        self.driver.check_guards()


# ---- the kernel of the run time --------------------------------------------------------------


@contextmanager
def emulated_kernel(
    plan: Plan,
    workers: int = 3,
    seed: int = 0,
    debug: bool = False,
    trace: bool = False,
    *,
    wait_limit_s: float = 20.0,
    still_s: float = 20.0,
    device: Path = DEVICE,
) -> Iterator[cuda_kernel.CudaKernel]:
    """A kernel like any other, whose device is this host; closed at the end. `still_s`: so long
    may nothing move; `device`: the headers."""
    driver = EmulatedDriver(devices=1)
    options = Options(target="cuda", workers=workers, debug=debug, trace=trace)
    env = replace(environment(), wait_limit_s=wait_limit_s)
    with installed(lambda: driver), patch.object(cuda_kernel, "build_cubin", _no_cubin):
        kernel = cuda_kernel.CudaKernel(plan, options, env)
        known = kernel.image.interface
        driver.rank = kernel.image.rank
        driver.words = max(1, len(known.dims)) + max(1, len(known.tensors))
        driver.maps = bool(kernel.image.maps)
        driver.run = Emulation(kernel.source, driver, seed, still_s, device)
        try:
            yield kernel
        finally:
            kernel.close()


def _no_cubin(source: str, name: str, architecture: str, env: Environment) -> Cubin:
    """No compiler of CUDA is asked: the driver does not look at the code."""
    path = env.cache_dir / "no.cubin"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"no code")
    return Cubin(path, "", True, Usage(0, 0, 0, 0))
