"""Progress bars on stderr for the slow parts of a start: packing, compiling, copying weights."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn


class ProgressBars:
    """Shows one bar at a time, and nothing outside of a terminal. `update` is the `progress`
    argument of `LLM`."""

    def __init__(self, console: Console) -> None:
        self._bars = Progress(
            TextColumn("{task.description}"), BarColumn(), DownloadColumn(), console=console,
            transient=True, disable=not console.is_terminal,
        )
        self._task = self._bars.add_task("compiling", total=None)

    def __enter__(self) -> ProgressBars:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._bars.stop()

    def update(self, name: str, done: int, total: int) -> None:
        if done < total:
            self._bars.update(self._task, completed=done, total=total, description=name)
        else:
            self._bars.reset(self._task, completed=0, description="compiling")
            self._bars.update(self._task, total=None)
