"""Shows the progress of a long check or compile.

After two seconds there is a line on stderr, if it is a terminal. If the logger "eventtensor" takes
INFO, there are records of that logger instead.
"""

from __future__ import annotations

import logging
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Event, Lock, Thread
from typing import TextIO

LOGGER = logging.getLogger("eventtensor")
PATIENCE_S = 2.0  # before anything is shown
TICK_S = 0.25
CLEAR = "\r\x1b[K"

_CURRENT: ContextVar[Progress | None] = ContextVar("progress", default=None)
_LINE = Lock()  # one line of the terminal for all threads


def doing(what: str) -> None:
    """Set the present step. It is shown if the `shown` block around it takes long."""
    current = _CURRENT.get()
    if current is not None:
        current.what = what


def in_pass(name: str) -> None:
    """Set the present pass of the compiler."""
    current = _CURRENT.get()
    if current is not None:
        current.stage, current.what = name, "begins"


@contextmanager
def shown(title: str) -> Iterator[None]:
    """Show the steps of a block if it takes long and there is a terminal or a log."""
    if _CURRENT.get() is not None or not (_logged() or _watched(sys.stderr)):
        yield
        return
    progress = Progress(title, sys.stderr)
    token, done = _CURRENT.set(progress), Event()
    ticker = Thread(target=_tick, args=(progress, done), daemon=True, name="progress")
    ticker.start()
    try:
        yield
    finally:
        done.set()
        ticker.join()
        _CURRENT.reset(token)
        progress.end()


def _tick(progress: Progress, done: Event) -> None:
    while not done.wait(TICK_S):
        progress.tick()


def _logged() -> bool:
    return LOGGER.isEnabledFor(logging.INFO)


def _watched(stream: TextIO | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()


@dataclass(slots=True)
class Progress:
    """The steps of one block, by pass. `tick` shows the present one after PATIENCE_S."""

    title: str
    stream: TextIO
    clock: Callable[[], float] = time.monotonic
    stage: str = ""
    what: str = "begins"
    began: float = field(init=False)
    said: str = ""
    said_at: float = field(init=False)
    on_line: bool = False

    def __post_init__(self) -> None:
        self.began = self.said_at = self.clock()

    def tick(self) -> None:
        now = self.clock()
        if now - self.began < PATIENCE_S:
            return
        if _logged():
            self._log(now)
        elif _watched(self.stream) and (self.on_line or _LINE.acquire(blocking=False)):
            self.on_line = True
            room = shutil.get_terminal_size().columns - 1
            self.stream.write(CLEAR + self._text(now)[:room])
            self.stream.flush()

    def _log(self, now: float) -> None:
        """Log a step that is still running at a tick, at most one in two seconds."""
        if self._step() != self.said and now - self.said_at >= PATIENCE_S:
            self.said, self.said_at = self._step(), now
            LOGGER.info("%s", self._text(now))

    def _step(self) -> str:
        return f"{self.stage}: {self.what}" if self.stage else self.what

    def _text(self, now: float) -> str:
        return f"{self.title}: {self._step()} ({now - self.began:.0f} s)"

    def end(self) -> None:
        """Leave the terminal as it was."""
        if self.on_line:
            self.stream.write(CLEAR)
            self.stream.flush()
            _LINE.release()
            self.on_line = False
