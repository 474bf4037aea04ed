"""Tests that need an NVIDIA GPU: not collected where there is no driver."""

from __future__ import annotations

import ctypes

from backend.conftest import lab

__all__ = ["lab"]


def _has_gpu() -> bool:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 \
        and count.value > 0


collect_ignore_glob = [] if _has_gpu() else ["test_*.py"]
