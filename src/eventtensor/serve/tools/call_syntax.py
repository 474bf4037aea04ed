"""What a syntax of calls is to the server: how tools get into the prompt, which answers may come,
and how an answer is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ..chat_request import Tool, ToolChoice
from ..deltas import OutputParser


class CallSyntax(Protocol):
    name: str  # for --tool-parser

    def prompt(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool]
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]] | None]:
        """Messages, and tools, as the chat template gets them."""
        ...

    def grammar(self, tools: Sequence[Tool], choice: ToolChoice) -> str:
        """In Lark, as llguidance reads it: what the answer may be."""
        ...

    def parser(self, tools: Sequence[Tool], choice: ToolChoice) -> OutputParser:
        """Of one answer."""
        ...
