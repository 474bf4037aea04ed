"""What the GPU does while it is measured: its power, and its clock, which falls at the limit."""

from __future__ import annotations

import ctypes
import threading
from types import TracebackType
from typing import Any

_EVERY = 0.01  # s
_SM = 1  # NVML_CLOCK_SM


def library() -> Any:
    """The driver's, or None where there is none."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return nvml if nvml.nvmlInit_v2() == 0 else None


class Watched:
    """`with Watched() as seen: ..`, then `seen.fields()`: nothing where nobody can be asked."""

    def __init__(self, nvml: Any = None) -> None:
        self._nvml = nvml or library()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.looks: list[tuple[int, float]] = []  # MHz and W

    def __enter__(self) -> Watched:
        if self._nvml is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._nvml is not None:
            self._thread.join()

    def _look(self) -> None:
        device, clock, power = ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_uint()
        if self._nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) != 0:
            return
        while not self._over.wait(_EVERY):
            told = (self._nvml.nvmlDeviceGetClockInfo(device, _SM, ctypes.byref(clock)),
                    self._nvml.nvmlDeviceGetPowerUsage(device, ctypes.byref(power)))
            if told == (0, 0):
                self.looks.append((clock.value, power.value / 1000))

    def fields(self) -> dict[str, int | str]:
        """Of a row: the clocks in MHz, from the lowest to the highest, and the most power in W."""
        if not self.looks:
            return {}
        clocks = sorted({clock for clock, _ in self.looks})
        shown = str(clocks[0]) if len(clocks) == 1 else f"{clocks[0]}..{clocks[-1]}"
        return {"clock_mhz": shown, "watts": round(max(power for _, power in self.looks))}
