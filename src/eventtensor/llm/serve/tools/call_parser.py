"""Parses answers whose tool calls are JSON objects, while they stream.

The parser passes on arguments as the model wrote them. It holds back only text that may begin a
call. The grammar that shapes such answers is in `call_grammar.py`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...engine.detokenizer import overlap
from ..chat_request import Tool
from ..deltas import ArgumentsDelta, CallDelta, Delta, TextDelta
from .json_calls import JsonCallForm, split_lexemes

State = Callable[[str], list[Delta]]

_INSIDE, _OUTSIDE = re.compile(r'["\\]'), re.compile(r'["{}\[\]]')


class JsonScanner:
    """Finds the end of a JSON object that arrives in pieces. `depth` counts open brackets."""

    def __init__(self, depth: int = 0) -> None:
        self._depth, self._in_string, self._escaped = depth, False, False

    def scan(self, text: str) -> int | None:
        """The index after the last bracket, if `text` contains it."""
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
class CallHead:
    """The parsed start of a call. `names` are the tools that it may still name. `is_named`: the
    name has started. The arguments start at index `arguments` if the head is complete."""

    names: Sequence[str]
    is_named: bool = False
    arguments: int | None = None


class CallHeadReader:
    """Parses the heads of calls to known tools. White space may appear between lexemes."""

    def __init__(self, form: JsonCallForm, names: Sequence[str], before: str = "") -> None:
        """`before` is text that may precede the call."""
        self._names = {name: json.dumps(name) for name in names}
        begin, key = split_lexemes(form.begin), split_lexemes(f',"{form.key}":')
        calls = [[*begin, *split_lexemes(head), None, *key] for head in form.heads]
        self._forms: list[list[str | None]] = [*calls]
        if before:
            self._forms += [[before, *call] for call in calls]

    def read(self, text: str) -> CallHead | None:
        """None: no call starts with this text."""
        found = [head for form in self._forms if (head := self._match(form, text)) is not None]
        return max(found, key=lambda h: (h.arguments is not None, h.is_named), default=None)

    def _match(self, form: Sequence[str | None], text: str) -> CallHead | None:
        """None in `form` stands for the tool's name."""
        names, at, is_named = list(self._names), 0, False
        for part in form:
            at = _skip_blanks(text, at)
            if part is None:
                is_named = at < len(text)
                names = [n for n in names if _is_prefix_match(self._names[n], text, at)]
                if not names:
                    return None
                part = self._names[names[0]]  # the only name, or the text ends inside it
            if not _is_prefix_match(part, text, at):
                return None
            at += len(part)
            if at >= len(text):
                return CallHead(names, is_named)
        at = _skip_blanks(text, at)
        if at == len(text):
            return CallHead(names, is_named)
        return CallHead(names, is_named, at) if text[at] == "{" else None


def _skip_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _is_prefix_match(part: str, text: str, at: int) -> bool:
    """Whether `part` and the text at `at` agree up to the shorter end."""
    return text.startswith(part, at) or part.startswith(text[at:])


class JsonCallParser:
    """A state machine. It drops white space around calls. A call to an unknown tool is text."""

    def __init__(self, form: JsonCallForm, tools: Sequence[Tool]) -> None:
        self._form, self._held, self._calls = form, "", 0
        names = [tool.name for tool in tools]
        self._first = CallHeadReader(form, names, form.tag)
        self._next = CallHeadReader(form, names, form.between.strip())
        self._scanner = JsonScanner()
        self._state: State = self._head if form.excludes_text else self._text

    def push(self, text: str) -> list[Delta]:
        return self._state(text) if text else []

    def end(self) -> list[Delta]:
        """A call that ends before its arguments counts if only one tool matches."""
        held, self._held = self._held, ""
        head = self._reader.read(held) if self._state == self._head else None
        if head is not None and (head.is_named or not self._form.excludes_text):
            return [CallDelta(self._calls, head.names[0])] if len(head.names) == 1 else []
        is_text = self._state in (self._head, self._text) and (held.strip() or not self._calls)
        return [TextDelta(held)] if is_text and held else []

    @property
    def _reader(self) -> CallHeadReader:
        return self._next if self._calls else self._first

    # ---- states: each takes new text and returns the deltas that are certain ---------------------

    def _text(self, text: str) -> list[Delta]:
        """Content; a call may start anywhere."""
        text = self._held + text
        begin = self._form.begin
        at = text.find(begin)
        sure = text[:at] if at >= 0 else text[: len(text) - overlap(text, begin)]
        sure = sure.rstrip()
        new: list[Delta] = [TextDelta(sure)] if sure else []
        rest = text[len(sure) :]
        if at >= 0:
            return new + self._enter(self._head, rest)
        self._held = rest
        return new

    def _head(self, text: str) -> list[Delta]:
        text = self._held + text
        head = self._reader.read(text)
        if head is None:
            return self._not_a_call(text)
        if head.arguments is None:
            self._held = text
            return []
        self._scanner = JsonScanner()
        call = CallDelta(self._calls, head.names[0])
        self._calls += 1
        return [call, *self._enter(self._arguments, text[head.arguments :])]

    def _not_a_call(self, text: str) -> list[Delta]:
        """Text, up to the next place where a call may start."""
        if self._form.excludes_text:
            return self._enter(self._plain, text)
        split = text.find(self._form.begin) + 1
        return [TextDelta(text[:split]), *self._enter(self._text, text[split:])]

    def _plain(self, text: str) -> list[Delta]:
        return [TextDelta(text)]

    def _arguments(self, text: str) -> list[Delta]:
        end = self._scanner.scan(text)
        more = ArgumentsDelta(self._calls - 1, text[:end])
        if end is None:
            return [more]
        self._scanner = JsonScanner(depth=1)
        return [more, *self._enter(self._rest, text[end:])]

    def _rest(self, text: str) -> list[Delta]:
        """The rest of the call's object, which is ignored."""
        end = self._scanner.scan(text)
        return [] if end is None else self._enter(self._end, text[end:])

    def _end(self, text: str) -> list[Delta]:
        text = (self._held + text).lstrip()
        end = self._form.end.strip()
        if end.startswith(text) and text != end:
            self._held = text
            return []
        return self._enter(self._after, text.removeprefix(end))

    def _after(self, text: str) -> list[Delta]:
        """After a call, before the next character."""
        text = text.lstrip()
        state = self._head if self._form.excludes_text else self._text
        return self._enter(state, text) if text else []

    def _enter(self, state: State, text: str) -> list[Delta]:
        self._held, self._state = "", state
        return self.push(text)
