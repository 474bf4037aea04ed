"""The input items of a responses request. `as_item` gives the form of the store and of lists of
input items. Output items are in `output_items.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from ..call_arguments import CallArguments
from ..response_writer import Json
from ..strict_body import Body, MaxItems, Name, NoEffect
from ..unions import TEXT_OR_OTHER, type_tag

_FROM_SERVERS = "servers add it to items, and clients send items back"
_ITEM: dict[str, NoEffect] = {
    "status": NoEffect(_FROM_SERVERS),
    "phase": NoEffect(_FROM_SERVERS),
    "created_by": NoEffect(_FROM_SERVERS),
    "caller": NoEffect(_FROM_SERVERS),
}


class InputText(Body):
    """Clients of chat completions send the type `text`."""

    type: Literal["input_text", "output_text", "text"]
    text: str
    accepted: ClassVar[Mapping[str, NoEffect]] = {
        "annotations": NoEffect(_FROM_SERVERS),
        "logprobs": NoEffect(_FROM_SERVERS),
        "prompt_cache_breakpoint": NoEffect("the prefix cache finds equal prompts by itself"),
    }


class Refusal(Body):
    """A refusal by another model. It counts as text."""

    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


def _part_kind(value: Any) -> str | None:
    kind = type_tag(value)
    return "~text" if kind in ("~input_text", "~output_text", "~text") else kind


Part = Annotated[
    Annotated[InputText, Tag("~text")] | Annotated[Refusal, Tag("~refusal")],
    Discriminator(
        _part_kind, custom_error_type="unsupported_value",
        custom_error_message="the model reads text: parts have type input_text, output_text or "
        "refusal, and images, files and audio are refused"),
]
Parts = Annotated[list[Part], MaxItems(1 << 12)]
Content = Annotated[Annotated[str, Tag("~text")] | Annotated[Parts, Tag("~other")], TEXT_OR_OTHER]


def _join_text(content: str | list[InputText | Refusal]) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)


class MessageItem(Body):
    type: Literal["message"] | None = None
    role: Literal["user", "assistant", "system", "developer"]
    content: Content
    id: Name | None = None
    accepted: ClassVar[Mapping[str, NoEffect]] = _ITEM

    def as_item(self) -> Json:
        kind = "output_text" if self.role == "assistant" else "input_text"
        part: Json = {"type": kind, "text": _join_text(self.content)}
        if self.role == "assistant":
            part["annotations"] = []
        return {"id": self.id, "type": "message", "role": self.role, "status": "completed",
                "content": [part]}


class CallItem(Body):
    type: Literal["function_call"]
    call_id: Name
    name: Name
    arguments: CallArguments
    id: Name | None = None
    accepted: ClassVar[Mapping[str, NoEffect]] = _ITEM | {
        "namespace": NoEffect("tools have no namespaces here, and their names are whole")}

    def as_item(self) -> Json:
        return {"id": self.id, "type": "function_call", "call_id": self.call_id, "name": self.name,
                "arguments": self.arguments, "status": "completed"}


class CallOutputItem(Body):
    type: Literal["function_call_output"]
    call_id: Name
    output: Content
    id: Name | None = None
    accepted: ClassVar[Mapping[str, NoEffect]] = _ITEM | {
        "name": NoEffect("the call that is answered has it"),
        "namespace": NoEffect("the call that is answered has it"),
    }

    def as_item(self) -> Json:
        return {"id": self.id, "type": "function_call_output", "call_id": self.call_id,
                "output": _join_text(self.output), "status": "completed"}


class ReasoningText(Body):
    type: Literal["reasoning_text", "text"]
    text: str


class SummaryText(Body):
    type: Literal["summary_text"]
    text: str


class ReasoningItem(Body):
    """Templates get its text; most drop reasoning that is older than the last question."""

    type: Literal["reasoning"]
    content: Annotated[list[ReasoningText], MaxItems(1 << 10)] | None = None
    summary: Annotated[list[SummaryText], MaxItems(1 << 10)] | None = None
    id: Name | None = None
    accepted: ClassVar[Mapping[str, NoEffect]] = _ITEM | {
        "encrypted_content": NoEffect("only the server that has encrypted it can read it")}

    def as_item(self) -> Json:
        content = [{"type": "reasoning_text", "text": c.text} for c in self.content or ()]
        return {"id": self.id, "type": "reasoning", "summary": [], "content": content,
                "status": "completed"}


class ReferenceItem(Body):
    """A reference to an item of a stored response."""

    type: Literal["item_reference"] | None = None
    id: Name

    def as_item(self) -> Json:
        return {"id": self.id, "type": "item_reference"}


def _item_kind(value: Any) -> str | None:
    """Messages and references may come without a type."""
    kind = type_tag(value)
    if kind is None and isinstance(value, dict):
        return "~message" if "role" in value else "~item_reference" if "id" in value else None
    return kind


Item = Annotated[
    Annotated[MessageItem, Tag("~message")]
    | Annotated[CallItem, Tag("~function_call")]
    | Annotated[CallOutputItem, Tag("~function_call_output")]
    | Annotated[ReasoningItem, Tag("~reasoning")]
    | Annotated[ReferenceItem, Tag("~item_reference")],
    Discriminator(
        _item_kind, custom_error_type="unsupported_value",
        custom_error_message="items have type message, function_call, function_call_output, "
        "reasoning or item_reference: tools that servers run are not here"),
]
Items = Annotated[list[Item], MaxItems(1 << 12), Field(min_length=1)]
Input = Annotated[Annotated[str, Tag("~text")] | Annotated[Items, Tag("~other")], TEXT_OR_OTHER]
