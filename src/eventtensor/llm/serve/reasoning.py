"""Splits reasoning from the answer: `<think>`, the reasoning, `</think>`, the answer.

The grammar of such answers is in `tools/call_grammar.py`."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import ClassVar

from ..engine.detokenizer import overlap
from .deltas import Delta, OutputParser, ReasoningDelta

State = Callable[[str], list[Delta]]

BEGIN, END = "<think>", "</think>"


class Thinking(Enum):
    """Whether an answer starts with reasoning."""

    never = "the answer has no reasoning"
    allowed = "the answer may begin with reasoning"
    opened = "the prompt has opened the reasoning"


class ThinkTags:
    """The tags of Qwen3, DeepSeek-R1 and similar models."""

    name: ClassVar[str] = "think"

    @staticmethod
    def fits(template: str) -> bool:
        return END in template

    @staticmethod
    def thinking(prompt_end: str) -> Thinking:
        """The state after a prompt that ends with this text. Some templates open the reasoning, and
        close it at once when thinking is off."""
        text = prompt_end.rstrip()
        if text.endswith(BEGIN):
            return Thinking.opened
        return Thinking.never if text.endswith(END) else Thinking.allowed

    @staticmethod
    def parser(content: OutputParser, thinking: Thinking) -> OutputParser:
        """`content` parses the text after the reasoning."""
        return content if thinking is Thinking.never else ThinkParser(content, thinking)


class ThinkParser:
    """A state machine. It drops white space around the reasoning and before the answer."""

    def __init__(self, content: OutputParser, thinking: Thinking) -> None:
        self._content, self._held = content, ""
        allowed = thinking is Thinking.allowed
        self._state: State = self._first if allowed else self._open

    def push(self, text: str) -> list[Delta]:
        return self._state(text)

    def end(self) -> list[Delta]:
        """Truncated reasoning may end with a part of `</think>`, which is kept as text."""
        held, self._held = self._held, ""
        left: list[Delta] = []
        if self._state == self._inside and (cut := held.rstrip()):
            left = [ReasoningDelta(cut)]
        elif self._state == self._first and held:
            left = self._content.push(held)
        return left + self._content.end()

    def _first(self, text: str) -> list[Delta]:
        text = self._held + text
        start = text.lstrip()
        if start.startswith(BEGIN):
            return self._enter(self._open, start[len(BEGIN) :])
        if BEGIN.startswith(start):
            self._held = text
            return []
        return self._enter(self._answer, text)

    def _open(self, text: str) -> list[Delta]:
        """Before the first character of the reasoning."""
        text = text.lstrip()
        return self._enter(self._inside, text) if text else []

    def _inside(self, text: str) -> list[Delta]:
        text = self._held + text
        thought, end, answer = text.partition(END)
        if end:
            thought = thought.rstrip()
            new: list[Delta] = [ReasoningDelta(thought)] if thought else []
            return new + self._enter(self._close, answer)
        sure = text[: len(text) - overlap(text, END)].rstrip()
        self._held = text[len(sure) :]
        return [ReasoningDelta(sure)] if sure else []

    def _close(self, text: str) -> list[Delta]:
        """Before the first character of the answer."""
        text = text.lstrip()
        return self._enter(self._answer, text) if text else []

    def _answer(self, text: str) -> list[Delta]:
        return self._content.push(text)

    def _enter(self, state: State, text: str) -> list[Delta]:
        self._held, self._state = "", state
        return self.push(text) if text else []
