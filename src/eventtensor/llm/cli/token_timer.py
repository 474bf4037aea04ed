"""Measures the time to the first token and the decode speed of one answer."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ..runner.bandwidth import Bandwidth


@dataclass
class TokenTimer:
    """`start_s` is when the request was sent. `record` is called at each token, and at the end."""

    prompt_tokens: int
    start_s: float
    times_s: list[float] = field(default_factory=list)

    def record(self) -> None:
        self.times_s.append(time.perf_counter())

    @property
    def middle_position(self) -> int:
        """The position of the middle decode step."""
        return self.prompt_tokens + len(self.times_s) // 2

    def summary(self, bytes_per_step: int, memory: Bandwidth, setup: str) -> str:
        """`bytes_per_step` is what the middle step reads. `setup` names target and dtype."""
        first_ms = (self.times_s[0] - self.start_s) * 1e3
        prefill = f"{setup}: {self.prompt_tokens} prompt tokens in {first_ms:.0f} ms"
        if len(self.times_s) == 1:
            return prefill
        step_s = (self.times_s[-1] - self.times_s[0]) / (len(self.times_s) - 1)
        rate = bytes_per_step / step_s
        return (
            f"{prefill}; then {1 / step_s:.1f} tokens/s, {bytes_per_step / 1e6:.0f} MB a step, "
            f"{rate / 1e9:.1f} GB/s = {100 * rate / memory.rate:.0f}% of the "
            f"{memory.rate / 1e9:.1f} GB/s that memory gives ({memory.how})"
        )
