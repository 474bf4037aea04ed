"""Power and clock of the GPU during a measurement.

The clock falls when the power reaches its limit."""

from __future__ import annotations

import ctypes
import threading
from types import TracebackType
from typing import Any

_INTERVAL_S = 0.01
_SM = 1  # NVML_CLOCK_SM


def library() -> Any:
    """The NVML library of the driver; None without one."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return nvml if nvml.nvmlInit_v2() == 0 else None


class PowerMonitor:
    """`with PowerMonitor() as seen: ..`, then `seen.fields()`, which is empty without a driver."""

    def __init__(self, nvml: Any = None) -> None:
        self._nvml = nvml or library()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.samples: list[tuple[int, float]] = []  # MHz and W

    def __enter__(self) -> PowerMonitor:
        if self._nvml is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._nvml is not None:
            self._thread.join()

    def _sample(self) -> None:
        device, clock, power = ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_uint()
        if self._nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) != 0:
            return
        while not self._stop.wait(_INTERVAL_S):
            statuses = (self._nvml.nvmlDeviceGetClockInfo(device, _SM, ctypes.byref(clock)),
                        self._nvml.nvmlDeviceGetPowerUsage(device, ctypes.byref(power)))
            if statuses == (0, 0):
                self.samples.append((clock.value, power.value / 1000))

    def fields(self) -> dict[str, int | str]:
        """Fields of a row: the lowest and the highest clock in MHz, and the largest power in W."""
        if not self.samples:
            return {}
        clocks = sorted({clock for clock, _ in self.samples})
        shown = str(clocks[0]) if len(clocks) == 1 else f"{clocks[0]}..{clocks[-1]}"
        return {"clock_mhz": shown, "watts": round(max(power for _, power in self.samples))}
