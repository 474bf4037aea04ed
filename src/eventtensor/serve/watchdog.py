"""Looks after the engine: a step that does not end becomes failed requests and refusals; if it
never ends, or if the engine has failed for good, the server goes down with the reason."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from ..engine.engine_core import Engine


class Watch:
    """`give_up` is told the reason once nothing helps: a step `patience_s` beyond its limit, or an
    engine that has stopped."""

    def __init__(
        self, engine: Engine, give_up: Callable[[str, bool], None], patience_s: float
    ) -> None:
        self._engine, self._give_up, self._patience_s = engine, give_up, patience_s
        self.started, self._gave_up = int(time.time()), False

    @property
    def trouble(self) -> str | None:
        """What keeps the engine from answering; None if nothing does."""
        if self._engine.failure is not None:
            return f"the engine has stopped: {self._engine.failure.message}"
        return "a step does not end" if self._engine.stuck_for else None

    async def run(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(min(1.0, self._engine.options.step_limit_s / 4))

    def look(self) -> None:
        late, failure = self._engine.stuck_for, self._engine.failure
        if late:
            self._engine.fail_stuck()
        if self._gave_up or (failure is None and late <= self._patience_s):
            return
        self._gave_up = True
        if failure is not None:
            self._give_up(f"the engine has stopped: {failure.message}", False)
        else:
            limit = self._engine.options.step_limit_s
            self._give_up(f"a step has not ended {late:.0f} s after its limit of {limit:g} s", True)
