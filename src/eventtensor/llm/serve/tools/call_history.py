"""Rewrites tool calls and results in a chat's messages into the form that its template expects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from .call_syntax import Message

# A template that writes arguments as JSON itself expects an object. The others expect text.
_TAKES_OBJECT = re.compile(
    r"""arguments['"]?\]?\s*(\|\s*(tojson|items|dictsort)|is\s+(not\s+)?(string|mapping))""")


def template_messages(messages: Sequence[Message], template: str) -> list[dict[str, Any]]:
    """Every message gets content, no message an empty list of calls, and arguments become objects
    or text as the template expects."""
    as_text = "arguments" in template and not _TAKES_OBJECT.search(template)
    return [_template_message(m, as_text) for m in messages]


def _template_message(message: Message, as_text: bool) -> dict[str, Any]:
    found = {**message, "content": message.get("content") or ""}
    calls = found.pop("tool_calls", None)
    if calls:
        found["tool_calls"] = [_with_text(call) for call in calls] if as_text else calls
    return found


def _with_text(call: Message) -> dict[str, Any]:
    function = call["function"]
    return {**call, "function": {**function, "arguments": arguments_text(function["arguments"])}}


def arguments_text(arguments: object) -> str:
    """Text stays unchanged, because truncated arguments are not JSON."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def split_calls(messages: Sequence[Message]) -> Iterator[Message]:
    """Gives each call its own message, followed by its result. Some templates accept only one call
    in a message."""
    at = 0
    while at < len(messages):
        message, at = messages[at], at + 1
        calls = message.get("tool_calls") or ()
        if len(calls) < 2:
            yield message
            continue
        results = []
        while at < len(messages) and messages[at].get("role") == "tool":
            results.append(messages[at])
            at += 1
        for k, call in enumerate(calls):
            yield {**message, "content": message.get("content") if k == 0 else "",
                   "tool_calls": [call]}
            matching = [r for r in results if r.get("tool_call_id") == call.get("id")]
            yield from matching
            results = [r for r in results if r not in matching]
        yield from results
