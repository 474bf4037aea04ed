"""Anthropic's content blocks, and their conversion to chat messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Tag

from ..response_writer import Json
from ..strict_body import Body, MaxItems, Name, NoEffect
from ..unions import TEXT_OR_OTHER, type_tag

CACHING = NoEffect("the prefix cache finds equal prompts by itself")
_FROM_SERVERS = "servers add it to blocks, and clients send blocks back"


class TextBlock(Body):
    type: Literal["text"]
    text: str
    accepted: ClassVar[Mapping[str, NoEffect]] = {
        "cache_control": CACHING,
        "citations": NoEffect(_FROM_SERVERS),
    }


class ThinkingBlock(Body):
    """Templates get it; most drop thinking that is older than the last question."""

    type: Literal["thinking"]
    thinking: str
    accepted: ClassVar[Mapping[str, NoEffect]] = {
        "signature": NoEffect("thinking is taken as it is"),
        "cache_control": CACHING,
    }


class RedactedBlock(Body):
    type: Literal["redacted_thinking"]
    accepted: ClassVar[Mapping[str, NoEffect]] = {
        "data": NoEffect("only the server that has encrypted it can read it"),
        "cache_control": CACHING,
    }


class ToolUseBlock(Body):
    type: Literal["tool_use"]
    id: Name
    name: Name
    input: dict[str, Any]
    accepted: ClassVar[Mapping[str, NoEffect]] = {
        "cache_control": CACHING,
        "caller": NoEffect(_FROM_SERVERS),
        "toolset_name": NoEffect(_FROM_SERVERS),
    }

    def as_call(self) -> Json:
        return {"id": self.id, "type": "function",
                "function": {"name": self.name, "arguments": self.input}}


_ONLY_TEXT = "the model reads text: images, documents and what servers' tools give are refused"
_Text = Annotated[
    Annotated[TextBlock, Tag("~text")],
    Discriminator(type_tag, custom_error_type="unsupported_value", custom_error_message=_ONLY_TEXT)]
_Texts = Annotated[list[_Text], MaxItems(1 << 12)]
TextContent = Annotated[Annotated[str, Tag("~text")] | Annotated[_Texts, Tag("~other")],
                        TEXT_OR_OTHER]


def join_text(content: str | list[TextBlock] | None) -> str:
    """Blocks become lines."""
    if isinstance(content, str):
        return content
    return "\n".join(block.text for block in content or ())


class ToolResultBlock(Body):
    """`is_error` becomes a prefix of the content."""

    type: Literal["tool_result"]
    tool_use_id: Name
    content: TextContent | None = None
    is_error: bool | None = None
    accepted: ClassVar[Mapping[str, NoEffect]] = {
        "cache_control": CACHING,
        "toolset_name": NoEffect(_FROM_SERVERS),
    }

    def as_message(self) -> Json:
        text = join_text(self.content)
        return {"role": "tool", "tool_call_id": self.tool_use_id,
                "content": f"Error: {text}" if self.is_error else text}


Block = Annotated[
    Annotated[TextBlock, Tag("~text")] | Annotated[ThinkingBlock, Tag("~thinking")]
    | Annotated[RedactedBlock, Tag("~redacted_thinking")]
    | Annotated[ToolUseBlock, Tag("~tool_use")] | Annotated[ToolResultBlock, Tag("~tool_result")],
    Discriminator(type_tag, custom_error_type="unsupported_value", custom_error_message=_ONLY_TEXT)]
_Blocks = Annotated[list[Block], MaxItems(1 << 12)]


class BlockMessage(Body):
    role: Literal["user", "assistant", "system"]
    content: Annotated[Annotated[str, Tag("~text")] | Annotated[_Blocks, Tag("~other")],
                       TEXT_OR_OTHER]

    def to_messages(self) -> Iterator[Json]:
        """Messages in the form that templates expect. Tool results get their own messages."""
        texts, calls, reasoning = list[str](), list[Json](), ""
        blocks = self.content
        if isinstance(blocks, str):
            texts, blocks = [blocks], []
        for block in blocks:
            match block:
                case TextBlock(text=text):
                    texts.append(text)
                case ThinkingBlock(thinking=text):
                    reasoning += text
                case ToolUseBlock():
                    calls.append(block.as_call())
                case ToolResultBlock():
                    if texts:
                        yield {"role": self.role, "content": "\n".join(texts)}
                        texts = []
                    yield block.as_message()
        if texts or calls or reasoning:
            yield _message(self.role, texts, calls, reasoning)


def build_messages(system: str, messages: Iterable[BlockMessage]) -> list[Json]:
    """Adjacent turns of one role become one message."""
    found: list[Json] = [{"role": "system", "content": system}] if system else []
    found += (plain for message in messages for plain in message.to_messages())
    turns = (list(turn) for _, turn in groupby(found, lambda message: message["role"]))
    return [message for turn in turns
            for message in (turn if turn[0]["role"] == "tool" else [_join_turn(turn)])]


def _join_turn(turn: list[Json]) -> Json:
    if len(turn) == 1:
        return turn[0]
    texts = [m["content"] for m in turn if m["content"]]
    calls = [call for m in turn for call in m.get("tool_calls", ())]
    thoughts = [m["reasoning_content"] for m in turn if "reasoning_content" in m]
    return _message(turn[0]["role"], texts, calls, "\n".join(thoughts))


def _message(role: str, texts: list[str], calls: list[Json], reasoning: str) -> Json:
    found: Json = {"role": role, "content": "\n".join(texts) if texts or not calls else None}
    if calls:
        found["tool_calls"] = calls
    if reasoning:
        found["reasoning_content"] = reasoning
    return found
