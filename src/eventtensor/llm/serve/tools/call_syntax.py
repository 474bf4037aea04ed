"""The interface of a tool-call syntax: it renders tools into the prompt, makes the grammar of
answers, and parses answers. Each syntax is a file of this package; `registry.py` lists them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from ..chat_request import Tool, ToolChoice
from ..deltas import OutputParser
from ..reasoning import Thinking

Message = Mapping[str, Any]


class CallSyntax(ABC):
    """The syntax of one model, with its chat template and control tokens. `name` is the value of
    --tool-parser."""

    name: ClassVar[str]

    def __init__(self, template: str, control_tokens: Collection[str] = ()) -> None:
        self.template, self.control_tokens = template, control_tokens

    @classmethod
    @abstractmethod
    def fits(cls, template: str) -> bool:
        """Whether the model of this template was trained with the syntax."""

    @abstractmethod
    def render(
        self, messages: Sequence[Message], tools: Sequence[Tool]
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Messages and tools for the template. Even without tools the history may contain calls and
        results."""

    @abstractmethod
    def grammar(
        self, tools: Sequence[Tool], choice: ToolChoice, content: str | None = None,
        thinking: Thinking = Thinking.never,
    ) -> str:
        """The grammar of the answer, in llguidance's Lark. `tools` are the allowed tools; the
        choice is not `none`. `content` is the grammar of an answer without calls; None: any
        text."""

    @abstractmethod
    def parser(self, tools: Sequence[Tool]) -> OutputParser:
        """A parser for one answer without its reasoning. `tools` are the allowed tools."""
