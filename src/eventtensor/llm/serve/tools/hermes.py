"""Tool calls between tags, as Hermes, Qwen2.5 and Qwen3 write them:

    <tool_call>
    {"name": "get_weather", "arguments": {"city": "Paris"}}
    </tool_call>
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from ..chat_request import Tool, ToolChoice
from ..deltas import OutputParser
from ..reasoning import Thinking
from .call_grammar import call_grammar
from .call_history import template_messages
from .call_parser import JsonCallParser
from .call_syntax import CallSyntax, Message
from .json_calls import JsonCallForm

TAGGED = JsonCallForm(begin="<tool_call>", heads=('\n{"name": ',), key="arguments",
                      end="\n</tool_call>", between="\n", excludes_text=False)


class Hermes(CallSyntax):
    name: ClassVar[str] = "hermes"

    @classmethod
    def fits(cls, template: str) -> bool:
        """Other syntaxes put XML between the same tags."""
        return "<tool_call>" in template and "<function=" not in template

    def render(
        self, messages: Sequence[Message], tools: Sequence[Tool]
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        return template_messages(messages, self.template), [t.as_openai() for t in tools]

    def grammar(
        self, tools: Sequence[Tool], choice: ToolChoice, content: str | None = None,
        thinking: Thinking = Thinking.never,
    ) -> str:
        return call_grammar(TAGGED, tools, choice, content, thinking)

    def parser(self, tools: Sequence[Tool]) -> OutputParser:
        return JsonCallParser(TAGGED, tools)
