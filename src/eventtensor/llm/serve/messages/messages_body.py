"""The bodies of Anthropic's messages API, and their conversion to a `ChatRequest`.

Content blocks are in `message_blocks.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from ....errors import BadParameter
from ...engine.sampling_params import SamplingParams
from ..chat_request import ChatRequest, Tool, ToolChoice, template_options
from ..strict_body import Body, Integer, MaxItems, Name, NoEffect
from ..unions import type_tag
from .message_blocks import CACHING, BlockMessage, TextContent, build_messages, join_text

MAX_TOOLS = 128
_ONE_SPEED = "all requests have one tier"


class ToolBody(Body):
    type: Literal["custom"] | None = None
    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,128}$")]
    description: str | None = None
    input_schema: dict[str, Any]
    strict: bool | None = None
    accepted: ClassVar[Mapping[str, NoEffect]] = {
        "cache_control": CACHING,
        "eager_input_streaming": NoEffect("input is always streamed"),
        "defer_loading": NoEffect("all tools are there from the start", (False,)),
        "allowed_callers": NoEffect("models call tools directly", (["direct"],)),
        "input_examples": NoEffect("templates have no place for them", ([],)),
    }

    def to_tool(self) -> Tool:
        return Tool(self.name, self.input_schema, self.description or "", bool(self.strict))


def _tool_kind(value: Any) -> str | None:
    return type_tag(value) or "~custom"


AnyTool = Annotated[
    Annotated[ToolBody, Tag("~custom")],
    Discriminator(_tool_kind, custom_error_type="unsupported_value",
                  custom_error_message="tools have an input_schema and no other type than custom: "
                  "this server runs no tools of its own")]


class ToolChoiceBody(Body):
    type: Literal["auto", "any", "tool", "none"]
    name: Name | None = None
    disable_parallel_tool_use: bool | None = None

    def to_choice(self, tools: list[Tool]) -> ToolChoice:
        """The choice; `none` without tools."""
        parallel = not self.disable_parallel_tool_use
        match self.type:
            case "tool":
                name = self.name or ""
                if name not in {tool.name for tool in tools}:
                    raise BadParameter(f"tool_choice names {name[:80]!r}, which is not in tools")
                return ToolChoice("named", name, parallel)
            case "any" if tools:
                return ToolChoice("required", None, parallel)
            case "auto" if tools:
                return ToolChoice("auto", None, parallel)
            case _:
                return ToolChoice("none")


class ThinkingOptions(Body):
    """Templates get it as `enable_thinking`."""

    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    accepted: ClassVar[Mapping[str, NoEffect]] = {
        "budget_tokens": NoEffect("max_tokens bounds thinking and answer together"),
        "display": NoEffect("thinking is always whole", ("summarized",)),
    }


class SchemaFormat(Body):
    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputOptions(Body):
    effort: Name | None = None
    format: SchemaFormat | None = None


class ThinkingEdit(Body):
    """Templates drop old thinking themselves."""

    type: Literal["clear_thinking_20251015"]
    accepted: ClassVar[Mapping[str, NoEffect]] = {
        "keep": NoEffect("the chat template decides which thinking stays")}


class ContextEdits(Body):
    edits: Annotated[list[ThinkingEdit], MaxItems(16)] | None = None


class CountBody(Body):
    """The fields that decide the tokens of a prompt."""

    model: Name
    messages: Annotated[list[BlockMessage], MaxItems(1 << 12), Field(min_length=1)]
    system: TextContent | None = None
    tools: Annotated[list[AnyTool], MaxItems(MAX_TOOLS)] | None = None
    tool_choice: ToolChoiceBody | None = None
    thinking: ThinkingOptions | None = None
    output_config: OutputOptions | None = None
    output_format: SchemaFormat | None = None  # the older name of output_config.format
    context_management: ContextEdits | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    accepted: ClassVar[Mapping[str, NoEffect]] = {
        "cache_control": CACHING,
        "speed": NoEffect(_ONE_SPEED),
        "betas": NoEffect("features need no opt-in here"),
    }
    refused: ClassVar[Mapping[str, str]] = {
        "mcp_servers": "this server runs no tools of its own",
        "container": "this server runs no tools of its own",
    }

    def to_chat_request(self) -> ChatRequest:
        if self.messages[-1].role == "assistant":
            raise BadParameter("messages: the last one is of the assistant",
                               hint="an answer is begun by the model: end with the user's turn")
        tools = [tool.to_tool() for tool in self.tools or ()]
        choice = (self.tool_choice or ToolChoiceBody(type="auto")).to_choice(tools)
        return ChatRequest(build_messages(join_text(self.system), self.messages), [self._params()],
                           tools, choice, self._options())

    def _params(self) -> SamplingParams:
        return SamplingParams()

    def _options(self) -> dict[str, Any]:
        thinking, output = self.thinking, self.output_config or OutputOptions()
        return template_options(
            self.chat_template_kwargs, reasoning_effort=output.effort,
            enable_thinking=None if thinking is None else thinking.type != "disabled")


class MessagesBody(CountBody):
    max_tokens: Integer
    stop_sequences: Annotated[list[str], MaxItems(16)] | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Integer | None = None
    accepted: ClassVar[Mapping[str, NoEffect]] = {
        **CountBody.accepted,
        "metadata": NoEffect("everybody gets the same answers"),
        "service_tier": NoEffect(_ONE_SPEED),
        "inference_geo": NoEffect("there is one place where the model runs"),
        "diagnostics": NoEffect("the prefix cache has no diagnostics"),
        "user_profile_id": NoEffect("everybody gets the same answers"),
    }

    def _params(self) -> SamplingParams:
        given: dict[str, Any] = {
            "max_tokens": self.max_tokens, "stop": self.stop_sequences,
            "temperature": self.temperature, "top_p": self.top_p, "top_k": self.top_k}
        format = self.output_format
        if self.output_config is not None and self.output_config.format is not None:
            format = self.output_config.format
        if format is not None:
            given["json_schema"] = format.schema_
        return SamplingParams(**{name: v for name, v in given.items() if v is not None})
