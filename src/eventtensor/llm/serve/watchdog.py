"""Watches the engine. A stuck step fails the running requests, and new ones are refused.

When the step stays stuck, or the engine has stopped for good, the server exits with the reason.
The engine itself measures how long a step runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from ..engine.engine_core import EngineCore


class Watchdog:
    """Calls `give_up(reason, is_stuck)` once: after a step runs `patience_s` beyond its limit, or
    after the engine has stopped."""

    def __init__(
        self, engine: EngineCore, give_up: Callable[[str, bool], None], patience_s: float
    ) -> None:
        self._engine, self._give_up, self._patience_s = engine, give_up, patience_s
        self.start_time, self._has_given_up = int(time.time()), False

    @property
    def trouble(self) -> str | None:
        """Why the engine cannot answer, or None."""
        if self._engine.failure is not None:
            return f"the engine has stopped: {self._engine.failure.message}"
        return "a step does not end" if self._engine.stuck_s else None

    async def run(self) -> None:
        while True:
            self.check_engine()
            await asyncio.sleep(min(1.0, self._engine.options.step_limit_s / 4))

    def check_engine(self) -> None:
        late, failure = self._engine.stuck_s, self._engine.failure
        if late:
            self._engine.fail_stuck()
        if self._has_given_up or (failure is None and late <= self._patience_s):
            return
        self._has_given_up = True
        if failure is not None:
            self._give_up(f"the engine has stopped: {failure.message}", False)
        else:
            limit = self._engine.options.step_limit_s
            self._give_up(f"a step has not ended {late:.0f} s after its limit of {limit:g} s", True)
