"""What a device does in a launch of the driver of paper (fake_driver.py), and its arrays."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np

from eventtensor.codegen import abi
from eventtensor.codegen.cuda.abi import CONTROL, STAMP, STAMPS
from tests.support.fake_driver import Launched


def on_device(x: np.ndarray) -> SimpleNamespace:
    shown = {"data": (x.ctypes.data, False), "shape": x.shape, "typestr": x.dtype.str, "version": 3}
    return SimpleNamespace(__cuda_array_interface__=shown, memory=x)


def stamp(launched: Launched, rank: int, began: int) -> None:
    """By the last worker."""
    made = np.zeros(1, STAMP.dtype(rank))
    number, step = (int(launched.shared[k]) for k in ("number", "step"))
    made[0] = (number, step, began, began + 4)
    at = int(launched.shared["stamps"]) + number % STAMPS * made.itemsize
    ctypes.memmove(at, made.ctypes.data, made.nbytes)


def fail(
    launched: Launched, rank: int, call: int, coords: tuple[int, int], place: int
) -> None:
    """By a worker whose wait is stuck."""
    report = np.zeros(1, abi.REPORT.dtype(rank))
    report[0] = (abi.STUCK_WAIT, 5, call, 0, place, 4, 3, coords)
    ctypes.memmove(int(launched.shared["report"]), report.ctypes.data, report.nbytes)
    control = np.zeros(1, CONTROL.dtype(rank))
    control[0] = (1, 1, 1, int(launched.shared["step"]), 0)
    ctypes.memmove(int(launched.shared["control"]), control.ctypes.data, control.nbytes)
