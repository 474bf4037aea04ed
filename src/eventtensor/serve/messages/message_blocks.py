"""Messages of blocks, and the messages of a chat that they become."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Tag

from ..response_writer import Json
from ..strict_body import Body, Few, Name, Neutral
from ..unions import TEXT_OR_OTHER, kind_of

CACHING = Neutral("the prefix cache finds equal prompts by itself")
_OF_BLOCKS = "servers add it to blocks, and clients send blocks back"


class TextBlock(Body):
    type: Literal["text"]
    text: str
    accepted: ClassVar[Mapping[str, Neutral]] = {
        "cache_control": CACHING,
        "citations": Neutral(_OF_BLOCKS),
    }


class ThinkingBlock(Body):
    """It goes to templates, which mostly drop what is older than the last question."""

    type: Literal["thinking"]
    thinking: str
    accepted: ClassVar[Mapping[str, Neutral]] = {
        "signature": Neutral("thinking is taken as it is"),
        "cache_control": CACHING,
    }


class RedactedBlock(Body):
    type: Literal["redacted_thinking"]
    accepted: ClassVar[Mapping[str, Neutral]] = {
        "data": Neutral("only the server that has encrypted it can read it"),
        "cache_control": CACHING,
    }


class ToolUseBlock(Body):
    type: Literal["tool_use"]
    id: Name
    name: Name
    input: dict[str, Any]
    accepted: ClassVar[Mapping[str, Neutral]] = {
        "cache_control": CACHING,
        "caller": Neutral(_OF_BLOCKS),
        "toolset_name": Neutral(_OF_BLOCKS),
    }

    def as_call(self) -> Json:
        return {"id": self.id, "type": "function",
                "function": {"name": self.name, "arguments": self.input}}


_ONLY_TEXT = "the model reads text: images, documents and what servers' tools give are refused"
_Text = Annotated[
    Annotated[TextBlock, Tag("~text")],
    Discriminator(kind_of, custom_error_type="unsupported_value", custom_error_message=_ONLY_TEXT)]
_Texts = Annotated[list[_Text], Few(1 << 12)]
TextContent = Annotated[Annotated[str, Tag("~text")] | Annotated[_Texts, Tag("~other")],
                        TEXT_OR_OTHER]


def joined(content: str | list[TextBlock] | None) -> str:
    """Blocks are lines."""
    if isinstance(content, str):
        return content
    return "\n".join(block.text for block in content or ())


class ToolResultBlock(Body):
    """`is_error` is told by the begin of the content."""

    type: Literal["tool_result"]
    tool_use_id: Name
    content: TextContent | None = None
    is_error: bool | None = None
    accepted: ClassVar[Mapping[str, Neutral]] = {
        "cache_control": CACHING,
        "toolset_name": Neutral(_OF_BLOCKS),
    }

    def as_message(self) -> Json:
        text = joined(self.content)
        return {"role": "tool", "tool_call_id": self.tool_use_id,
                "content": f"Error: {text}" if self.is_error else text}


Block = Annotated[
    Annotated[TextBlock, Tag("~text")] | Annotated[ThinkingBlock, Tag("~thinking")]
    | Annotated[RedactedBlock, Tag("~redacted_thinking")]
    | Annotated[ToolUseBlock, Tag("~tool_use")] | Annotated[ToolResultBlock, Tag("~tool_result")],
    Discriminator(kind_of, custom_error_type="unsupported_value", custom_error_message=_ONLY_TEXT)]
_Blocks = Annotated[list[Block], Few(1 << 12)]


class BlockMessage(Body):
    role: Literal["user", "assistant", "system"]
    content: Annotated[Annotated[str, Tag("~text")] | Annotated[_Blocks, Tag("~other")],
                       TEXT_OR_OTHER]

    def plain(self) -> Iterator[Json]:
        """As templates take it: results of tools have messages of their own."""
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
            message: Json = {"role": self.role,
                             "content": "\n".join(texts) if texts or not calls else None}
            yield message | ({"tool_calls": calls} if calls else {}) | (
                {"reasoning_content": reasoning} if reasoning else {})


def messages_of(system: str, messages: Iterable[BlockMessage]) -> list[Json]:
    """Turns of one role that follow each other are one turn."""
    found: list[Json] = [{"role": "system", "content": system}] if system else []
    for message in messages:
        for plain in message.plain():
            last = found[-1] if found else {}
            if plain["role"] == last.get("role") and plain["role"] != "tool":
                found[-1] = _both(last, plain)
            else:
                found.append(plain)
    return found


def _both(a: Json, b: Json) -> Json:
    texts = [m["content"] for m in (a, b) if m["content"]]
    both: Json = a | b | {"content": "\n".join(texts) if texts else None}
    if calls := [call for m in (a, b) for call in m.get("tool_calls", ())]:
        both["tool_calls"] = calls
    if thoughts := [m["reasoning_content"] for m in (a, b) if "reasoning_content" in m]:
        both["reasoning_content"] = "\n".join(thoughts)
    return both
