"""Indented text as a tree of lines. An error inside `with line:` gets the number of the line."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import TracebackType

from ..errors import BadText
from .parse_expr import Unreadable


@dataclass(eq=False)
class Line:
    number: int
    indent: int
    text: str
    children: list[Line] = field(default_factory=list)

    def __enter__(self) -> Line:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, Unreadable):
            raise BadText(
                f"line {self.number}: {error}", place=f"<text>:{self.number}"
            ) from error

    def no_children(self) -> None:
        if self.children:
            raise Unreadable("this line has indented lines under it")


def read_lines(source: str) -> list[Line]:
    """The top-level lines, each with what is indented under it. Blank lines and `#` lines are
    skipped; only "\\n" ends a line, so hand-written code keeps its own characters."""
    root = Line(0, -1, "")
    stack = [root]
    for number, raw in enumerate(source.split("\n"), start=1):
        body = raw.lstrip(" ")
        if not body.strip() or body.startswith("#"):
            continue
        line = Line(number, len(raw) - len(body), body if body[0] == "|" else body.rstrip())
        while stack[-1].indent >= line.indent:
            stack.pop()
        with line:
            if stack[-1].children and stack[-1].children[0].indent != line.indent:
                raise Unreadable("this line is not indented like the ones beside it")
        stack[-1].children.append(line)
        stack.append(line)
    return root.children


def split_once(source: str, separator: str) -> tuple[str, str]:
    before, found, after = source.partition(separator)
    if not found:
        raise Unreadable(f"'{source}' has no '{separator.strip() or ' '}'")
    return before, after
