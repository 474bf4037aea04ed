"""How models think before they answer: `<think>`, the reasoning, `</think>`, the answer."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import ClassVar

from ..engine.detokenizer import overlap
from .deltas import Delta, OutputParser, ReasoningDelta

State = Callable[[str], list[Delta]]

BEGIN, END = "<think>", "</think>"


class Thinking(Enum):
    """At the begin of an answer."""

    never = "the answer has no reasoning"
    allowed = "the answer may begin with reasoning"
    opened = "the prompt has opened the reasoning"


class ThinkTags:
    """Qwen3, DeepSeek-R1 and their kind."""

    name: ClassVar[str] = "think"

    @staticmethod
    def fits(template: str) -> bool:
        return END in template

    @staticmethod
    def thinking(prompt_end: str) -> Thinking:
        """After a prompt that ends with this text. Some templates open the reasoning, and close it
        at once where thinking is turned off."""
        text = prompt_end.rstrip()
        if text.endswith(BEGIN):
            return Thinking.opened
        return Thinking.never if text.endswith(END) else Thinking.allowed

    @staticmethod
    def parser(content: OutputParser, thinking: Thinking) -> OutputParser:
        """`content` reads what comes after the reasoning."""
        return content if thinking is Thinking.never else ThinkParser(content, thinking)


class ThinkParser:
    """Blanks at both ends of the reasoning, and before the answer, are no part of either."""

    def __init__(self, content: OutputParser, thinking: Thinking) -> None:
        self._content, self._held = content, ""
        allowed = thinking is Thinking.allowed
        self._state: State = self._first if allowed else self._open

    def push(self, text: str) -> list[Delta]:
        return self._state(text)

    def end(self) -> list[Delta]:
        """Of reasoning that is cut, the begin of `</think>` may be left."""
        held, self._held = self._held, ""
        left: list[Delta] = []
        if self._state == self._inside and (cut := held.rstrip()):
            left = [ReasoningDelta(cut)]
        elif self._state == self._first and held:
            left = self._content.push(held)
        return left + self._content.end()

    def _first(self, text: str) -> list[Delta]:
        text = self._held + text
        begun = text.lstrip()
        if begun.startswith(BEGIN):
            return self._turn(self._open, begun[len(BEGIN) :])
        if BEGIN.startswith(begun):
            self._held = text
            return []
        return self._turn(self._answer, text)

    def _open(self, text: str) -> list[Delta]:
        """Before the first character of the reasoning."""
        text = text.lstrip()
        return self._turn(self._inside, text) if text else []

    def _inside(self, text: str) -> list[Delta]:
        text = self._held + text
        found, over, answer = text.partition(END)
        if over:
            found = found.rstrip()
            new: list[Delta] = [ReasoningDelta(found)] if found else []
            return new + self._turn(self._close, answer)
        sure = text[: len(text) - overlap(text, END)].rstrip()
        self._held = text[len(sure) :]
        return [ReasoningDelta(sure)] if sure else []

    def _close(self, text: str) -> list[Delta]:
        """Before the first character of the answer."""
        text = text.lstrip()
        return self._turn(self._answer, text) if text else []

    def _answer(self, text: str) -> list[Delta]:
        return self._content.push(text)

    def _turn(self, state: State, text: str) -> list[Delta]:
        self._held, self._state = "", state
        return self.push(text) if text else []
