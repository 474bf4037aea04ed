"""Converts items of the responses API to chat messages."""

from __future__ import annotations

from collections.abc import Iterable

from ..call_arguments import parse_arguments
from ..response_writer import Json


def build_messages(items: Iterable[Json], instructions: str | None = None) -> list[Json]:
    """Reasoning, text and calls of one answer become one message. Leading system messages become
    one, because many templates accept only one."""
    system = [instructions] if instructions else []
    found: list[Json] = []
    reasoning: list[str] = []
    for item in items:
        match item["type"]:
            case "reasoning":
                reasoning += (part["text"] for part in item["content"])
                continue
            case "message":
                role = "system" if item["role"] == "developer" else item["role"]
                text = "".join(part["text"] for part in item["content"])
                if role == "system" and not found:
                    system.append(text)
                    continue
                found.append({"role": role, "content": text})
            case "function_call":
                if not found or found[-1]["role"] != "assistant" or reasoning:
                    found.append({"role": "assistant", "content": None})
                found[-1].setdefault("tool_calls", []).append(_call(item))
            case "function_call_output":
                found.append({"role": "tool", "tool_call_id": item["call_id"],
                              "content": item["output"]})
        if reasoning and found[-1]["role"] == "assistant":
            found[-1]["reasoning_content"] = "".join(reasoning)
        reasoning = []
    first = [{"role": "system", "content": "\n\n".join(system)}] if system else []
    return first + found


def _call(item: Json) -> Json:
    arguments = parse_arguments(item["arguments"])
    return {"id": item["call_id"], "type": "function",
            "function": {"name": item["name"], "arguments": arguments}}
