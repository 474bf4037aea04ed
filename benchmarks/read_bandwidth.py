"""Kernels that only read: the read bandwidth that floors rest on, and a peer of decode kernels."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.hopper import FLAGS, SOURCES
from benchmarks.measure import Bench, find_nvcc, gpu_us, here, torch

READ_BYTES = 2 << 30


@functools.cache
def library() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "read.so"
        command = [find_nvcc(), *FLAGS, "-shared", "-Xcompiler", "-fPIC", "-o", str(made),
                   str(SOURCES / "read.cu")]
        subprocess.run(command, check=True, timeout=180)
        return ctypes.CDLL(str(made))


def read_kernel(name: str, sums: Any) -> Callable[[Any], None]:
    """Enqueues a kernel that reads a tensor; `sums` gets a word an SM."""
    call = getattr(library(), name)
    call.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_int,
                     ctypes.c_void_p)

    def enqueue(x: Any) -> None:
        size = x.numel() * x.element_size()
        status = call(x.data_ptr(), size, sums.data_ptr(), sums.numel(), here().cuda_stream)
        if status != 0:
            raise RuntimeError(f"{name} answers CUDA error {status}")

    return enqueue


def folded(sums: Any) -> int:
    return functools.reduce(lambda a, b: a ^ b, sums.tolist(), 0)


def measure_read(bench: Bench) -> tuple[float, Callable[[Any], None]]:
    """The best read bandwidth in GB/s, and the kernel that has it."""
    t = torch()
    size = READ_BYTES // 8 if bench.quick else READ_BYTES
    data = t.empty(size // 4, dtype=t.int32, device="cuda").random_()
    count = t.cuda.get_device_properties(0).multi_processor_count
    best: list[tuple[float, Callable[[Any], None]]] = []
    seen = set()
    for name in ("read_plain", "read_bulk"):
        sums = t.zeros(count, dtype=t.int32, device="cuda")
        kernel = read_kernel(name, sums)
        times = gpu_us(lambda kernel=kernel: kernel(data), bench.samples)
        seen.add(folded(sums))
        row = bench.add("read", [size / us / 1e3 for us in times], "GB/s", kernel=name,
                        megabytes=size >> 20)
        best.append((row["median"], kernel))
    if len(seen) != 1:
        raise RuntimeError("the two read kernels did not read the same bytes")
    return max(best, key=lambda found: found[0])
