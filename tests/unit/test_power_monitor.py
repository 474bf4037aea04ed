"""benchmarks/power_monitor.py reads power and clock of a GPU, here through a fake NVML library."""

from __future__ import annotations

import time
from typing import Any

import pytest

from benchmarks.power_monitor import PowerMonitor


class Nvml:
    """Has some looks, the last one again and again; None is one that it refuses."""

    def __init__(self, *looks: tuple[int, int] | None, missing: int = 0) -> None:
        self.looks, self.missing = list(looks), missing

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, device: Any) -> int:
        return self.missing

    def nvmlDeviceGetClockInfo(self, device: Any, kind: int, clock: Any) -> int:
        assert kind == 1
        clock._obj.value = self.looks[0][0] if self.looks[0] else 0
        return 0

    def nvmlDeviceGetPowerUsage(self, device: Any, power: Any) -> int:
        look = self.looks[0]
        if len(self.looks) > 1:
            del self.looks[0]
        power._obj.value = look[1] if look else 0
        return 0 if look else 3


def seen(nvml: Nvml, least: int) -> PowerMonitor:
    with PowerMonitor(nvml) as found:
        while len(found.samples) < least:
            time.sleep(0.001)
    return found


def test_clocks_and_the_most_power_are_told() -> None:
    nvml = Nvml((1980, 681_040), None, (1545, 699_600), (1890, 12_000))
    assert seen(nvml, 3).fields() == {"clock_mhz": "1545..1980", "watts": 700}
    assert seen(Nvml((1980, 99_600)), 1).fields() == {"clock_mhz": "1980", "watts": 100}


def test_nothing_is_told_where_nobody_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(Nvml((1980, 1), missing=6), 0).fields() == {}
    monkeypatch.setattr("benchmarks.power_monitor.library", lambda: None)
    with PowerMonitor() as found:
        pass
    assert found.fields() == {}
