"""What a syntax of calls is to the server: how tools get into the prompt, which answers may come,
and how an answer is read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from ..chat_request import Tool, ToolChoice
from ..deltas import OutputParser
from ..reasoning import Thinking

Message = Mapping[str, Any]


class CallSyntax(ABC):
    """Of one model, by its chat template and its control tokens. `name` is for --tool-parser."""

    name: ClassVar[str]

    def __init__(self, template: str, control_tokens: Collection[str] = ()) -> None:
        self.template, self.control_tokens = template, control_tokens

    @classmethod
    @abstractmethod
    def fits(cls, template: str) -> bool:
        """Whether the model of this template was trained with the syntax."""

    @abstractmethod
    def prompt(
        self, messages: Sequence[Message], tools: Sequence[Tool]
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Messages, and tools, as the template gets them. Without tools the history may still have
        calls and their results."""

    @abstractmethod
    def grammar(
        self, tools: Sequence[Tool], choice: ToolChoice, content: str | None = None,
        thinking: Thinking = Thinking.never,
    ) -> str:
        """In Lark, as llguidance reads it: what the answer may be. `tools` are those that the
        choice allows, which is not `none`. `content` is a grammar for answers that call nothing;
        None: any text."""

    @abstractmethod
    def parser(self, tools: Sequence[Tool]) -> OutputParser:
        """Of one answer without its reasoning; `tools` are those that it may call."""
