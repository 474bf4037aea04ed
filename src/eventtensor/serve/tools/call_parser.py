"""Reads answers whose calls are JSON objects, as they come. Pieces of arguments are given as the
model wrote them. Only what may be the begin of a call is held back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...engine.detokenizer import overlap
from ..chat_request import Tool
from ..deltas import ArgumentsDelta, CallDelta, Delta, TextDelta
from .json_calls import JsonCallForm, parts

State = Callable[[str], list[Delta]]

_INSIDE, _OUTSIDE = re.compile(r'["\\]'), re.compile(r'["{}\[\]]')


class JsonScanner:
    """Finds where a JSON object ends whose text comes in pieces. `depth`: of brackets so far."""

    def __init__(self, depth: int = 0) -> None:
        self._depth, self._in_string, self._escaped = depth, False, False

    def scan(self, text: str) -> int | None:
        """Just behind the last bracket, if it is here."""
        at = 0
        while at < len(text):
            if self._escaped:
                self._escaped, at = False, at + 1
                continue
            found = (_INSIDE if self._in_string else _OUTSIDE).search(text, at)
            if found is None:
                return None
            at = found.end()
            match found[0]:
                case "\\":
                    self._escaped = True
                case '"':
                    self._in_string = not self._in_string
                case "{" | "[":
                    self._depth += 1
                case _:
                    self._depth -= 1
                    if self._depth <= 0:
                        return at
        return None


@dataclass(frozen=True)
class Head:
    """What is read of the begin of a call: `names` are the tools that it may name. Arguments begin
    at `arguments`, if the head is whole. `is_named`: the name has begun."""

    names: Sequence[str]
    is_named: bool = False
    arguments: int | None = None


class HeadReader:
    """For calls of known tools. Blanks may be anywhere."""

    def __init__(self, form: JsonCallForm, names: Sequence[str], before: str = "") -> None:
        """`before`: what may stand before the call."""
        self._names = {name: json.dumps(name) for name in names}
        calls = [[*parts(form.begin), *parts(head), None, *parts(f',"{form.key}":')]
                 for head in form.heads]
        self._forms: list[list[str | None]] = [*calls]
        if before:
            self._forms += [[before, *call] for call in calls]

    def read(self, text: str) -> Head | None:
        """None: no call begins so."""
        found = [head for form in self._forms if (head := self._along(form, text)) is not None]
        return max(found, key=lambda h: (h.arguments is not None, h.is_named), default=None)

    def _along(self, form: Sequence[str | None], text: str) -> Head | None:
        """None stands for the name."""
        names, at, is_named = list(self._names), 0, False
        for part in form:
            at = _skip_blanks(text, at)
            if part is None:
                is_named = at < len(text)
                names = [n for n in names if _agree(self._names[n], text, at)]
                if not names:
                    return None
                part = self._names[names[0]]  # the only one, or the text ends inside of it
            if not _agree(part, text, at):
                return None
            at += len(part)
            if at >= len(text):
                return Head(names, is_named)
        at = _skip_blanks(text, at)
        if at == len(text):
            return Head(names, is_named)
        return Head(names, is_named, at) if text[at] == "{" else None


def _skip_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _agree(part: str, text: str, at: int) -> bool:
    """Whether the text goes on with the part, as far as it goes."""
    return text.startswith(part, at) or part.startswith(text[at:])


class JsonCallParser:
    """Blanks around calls are no content. What looks like a call of an unknown tool is text."""

    def __init__(self, form: JsonCallForm, tools: Sequence[Tool]) -> None:
        self._form, self._held, self._calls = form, "", 0
        names = [tool.name for tool in tools]
        self._first = HeadReader(form, names, form.tag)
        self._next = HeadReader(form, names, form.between.strip())
        self._scanner = JsonScanner()
        self._state: State = self._head if form.alone else self._text

    def push(self, text: str) -> list[Delta]:
        return self._state(text) if text else []

    def end(self) -> list[Delta]:
        """A call that is cut before its arguments counts if only one tool begins so."""
        held, self._held = self._held, ""
        head = self._reader.read(held) if self._state == self._head else None
        if head is not None and (head.is_named or not self._form.alone):
            return [CallDelta(self._calls, head.names[0])] if len(head.names) == 1 else []
        is_text = self._state in (self._head, self._text) and (held.strip() or not self._calls)
        return [TextDelta(held)] if is_text and held else []

    @property
    def _reader(self) -> HeadReader:
        return self._next if self._calls else self._first

    # ---- states: each gets what is new, and gives what is certain --------------------------------

    def _text(self, text: str) -> list[Delta]:
        """Where calls may begin anywhere."""
        text = self._held + text
        begin = self._form.begin
        at = text.find(begin)
        sure = text[:at] if at >= 0 else text[: len(text) - overlap(text, begin)]
        sure = sure.rstrip()
        new: list[Delta] = [TextDelta(sure)] if sure else []
        rest = text[len(sure) :]
        if at >= 0:
            return new + self._turn(self._head, rest)
        self._held = rest
        return new

    def _head(self, text: str) -> list[Delta]:
        text = self._held + text
        head = self._reader.read(text)
        if head is None:
            return self._no_call(text)
        if head.arguments is None:
            self._held = text
            return []
        self._scanner = JsonScanner()
        call = CallDelta(self._calls, head.names[0])
        self._calls += 1
        return [call, *self._turn(self._arguments, text[head.arguments :])]

    def _no_call(self, text: str) -> list[Delta]:
        """It is text up to where a call may begin."""
        if self._form.alone:
            return self._turn(self._plain, text)
        begun = text.find(self._form.begin) + 1
        return [TextDelta(text[:begun]), *self._turn(self._text, text[begun:])]

    def _plain(self, text: str) -> list[Delta]:
        return [TextDelta(text)]

    def _arguments(self, text: str) -> list[Delta]:
        end = self._scanner.scan(text)
        more = ArgumentsDelta(self._calls - 1, text[:end])
        if end is None:
            return [more]
        self._scanner = JsonScanner(depth=1)
        return [more, *self._turn(self._rest, text[end:])]

    def _rest(self, text: str) -> list[Delta]:
        """Of the object; it has nothing of interest."""
        end = self._scanner.scan(text)
        return [] if end is None else self._turn(self._end, text[end:])

    def _end(self, text: str) -> list[Delta]:
        text = (self._held + text).lstrip()
        end = self._form.end.strip()
        if end.startswith(text) and text != end:
            self._held = text
            return []
        return self._turn(self._after, text.removeprefix(end))

    def _after(self, text: str) -> list[Delta]:
        """Before the first character behind a call."""
        text = text.lstrip()
        return self._turn(self._head if self._form.alone else self._text, text) if text else []

    def _turn(self, state: State, text: str) -> list[Delta]:
        self._held, self._state = "", state
        return self.push(text)
