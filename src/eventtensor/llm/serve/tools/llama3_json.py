"""Tool calls of Llama 3.1 to 3.3: an answer that is a JSON object is a call.

    {"name": "get_weather", "parameters": {"city": "Paris"}}

`<|python_tag|>` may precede it. As a control token it does not appear in the text of an answer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from ..chat_request import Tool, ToolChoice
from ..deltas import OutputParser
from ..reasoning import Thinking
from .call_grammar import call_grammar
from .call_history import split_calls, template_messages
from .call_parser import JsonCallParser
from .call_syntax import CallSyntax, Message
from .json_calls import JsonCallForm

BARE = JsonCallForm(begin="", heads=('{"name": ', '{"type": "function", "name": '),
                    key="parameters", end="", between="; ", excludes_text=True)
_TAG = "<|python_tag|>"


class Llama3Json(CallSyntax):
    name: ClassVar[str] = "llama3_json"

    def __init__(self, template: str, control_tokens: Collection[str] = ()) -> None:
        super().__init__(template, control_tokens)
        self._form = replace(BARE, tag=_TAG) if _TAG in control_tokens else BARE

    @classmethod
    def fits(cls, template: str) -> bool:
        return "tools" in template and '"parameters": ' in template and "ipython" in template

    def render(
        self, messages: Sequence[Message], tools: Sequence[Tool]
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The templates refuse messages with several calls."""
        split = list(split_calls(messages))
        return template_messages(split, self.template), [t.as_openai() for t in tools]

    def grammar(
        self, tools: Sequence[Tool], choice: ToolChoice, content: str | None = None,
        thinking: Thinking = Thinking.never,
    ) -> str:
        return call_grammar(self._form, tools, choice, content, thinking)

    def parser(self, tools: Sequence[Tool]) -> OutputParser:
        return JsonCallParser(self._form, tools)
