"""Tests that need an NVIDIA GPU: skipped, with this reason, where there is none."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
from backend.conftest import lab

__all__ = ["lab"]

HERE = Path(__file__).parent


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
