"""Tool calls for models whose chat template has no tools.

A system message describes the tools. Calls and results are text in the history. The model writes
calls between tags, as in `hermes.py`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from ..chat_request import Tool, ToolChoice
from ..reasoning import Thinking
from .call_history import arguments_text, template_messages
from .call_syntax import Message
from .hermes import Hermes

_SYSTEM = """\
You may call functions to help with the user's request. These are the functions, as JSON:
<tools>
{tools}
</tools>

To call a function, write its name and arguments as JSON between tags, and nothing after it:
<tool_call>
{{"name": "the name of the function", "arguments": {{"the name of an argument": "its value"}}}}
</tool_call>
Results of calls come between <tool_response> and </tool_response>."""


class PromptedTools(Hermes):
    name: ClassVar[str] = "prompted"

    @classmethod
    def fits(cls, template: str) -> bool:
        return True

    def render(
        self, messages: Sequence[Message], tools: Sequence[Tool]
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The template gets no tools."""
        found = list[dict[str, Any]]()
        for message in template_messages(messages, self.template):
            if message["role"] != "tool":
                found.append(_with_calls(message))
            elif found and found[-1].get("role") == "tool":
                found[-1]["content"] += "\n" + _result(message)
            else:
                found.append({"role": "tool", "content": _result(message)})
        for message in found:
            if message["role"] == "tool":
                message["role"] = "user"
        return (_with_system(found, tools) if tools else found), []

    def grammar(
        self, tools: Sequence[Tool], choice: ToolChoice, content: str | None = None,
        thinking: Thinking = Thinking.never,
    ) -> str:
        """Allows one call in an answer, because untrained models repeat calls."""
        return super().grammar(tools, replace(choice, parallel=False), content, thinking)


def _with_calls(message: Message) -> dict[str, Any]:
    calls = [_call(call["function"]) for call in message.get("tool_calls") or ()]
    rest = {k: v for k, v in message.items() if k != "tool_calls"}
    return rest | {"content": "\n".join(filter(None, [rest["content"], *calls]))}


def _call(function: Message) -> str:
    arguments = arguments_text(function["arguments"])
    body = f'{{"name": {json.dumps(function["name"])}, "arguments": {arguments}}}'
    return f"<tool_call>\n{body}\n</tool_call>"


def _result(message: Message) -> str:
    return f"<tool_response>\n{message['content']}\n</tool_response>"


def _with_system(messages: list[dict[str, Any]], tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """Appends the tools to the system message of the chat."""
    schemas = "\n".join(json.dumps(t.as_openai()["function"], ensure_ascii=False) for t in tools)
    text = _SYSTEM.format(tools=schemas)
    if messages and messages[0]["role"] == "system":
        first = messages[0]
        return [{**first, "content": f"{first['content']}\n\n{text}".lstrip()}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]
