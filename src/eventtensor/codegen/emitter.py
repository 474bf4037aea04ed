"""Writes C++: lines with an indentation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ..kernel_ir.names import cpp_name as cpp_name


class Emitter:
    """Lines of text with an indentation."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0

    def line(self, text: str = "") -> None:
        self._lines.append("  " * self._depth + text if text else "")

    def comment(self, text: str) -> None:
        self.line(f"// {text}")

    @contextmanager
    def block(self, head: str, tail: str = "}") -> Iterator[None]:
        """`head {` .. `}`; an empty head gives a plain scope."""
        self.line(f"{head} {{" if head else "{")
        with self.indented():
            yield
        self.line(tail)

    @contextmanager
    def indented(self) -> Iterator[None]:
        self._depth += 1
        yield
        self._depth -= 1

    def deeper(self) -> None:
        self._depth += 1

    def shallower(self) -> None:
        self._depth -= 1

    def extend(self, lines: list[str]) -> None:
        for text in lines:
            self.line(text)

    def cut(self, first: int) -> list[str]:
        """Takes away the lines from number `first` on."""
        lines = self._lines[first:]
        del self._lines[first:]
        return lines

    def paste(self, lines: Iterable[str]) -> None:
        """Lines that are indented already."""
        self._lines += lines

    def __len__(self) -> int:
        """Of lines."""
        return len(self._lines)

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"
