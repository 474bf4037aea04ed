"""The bodies of OpenAI's responses API, and their conversion to a `ChatRequest`.

Items of the input are in `input_items.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Discriminator, Field, Tag

from ....errors import BadParameter
from ...engine.sampling_params import SamplingParams
from ..chat_request import ChatRequest, Tool, ToolChoice, template_options
from ..response_writer import Json
from ..sampling_fields import ObjectFormat, TextFormat
from ..strict_body import Body, Integer, MaxItems, Name, NoEffect
from ..unions import TEXT_OR_OTHER, type_tag
from .input_items import Input
from .item_messages import build_messages

MAX_TOOLS = 128
_NO_BUILT_IN = "this server runs no tools of its own"


class SchemaFormat(Body):
    """Answers always follow `schema`, whatever `strict` says."""

    type: Literal["json_schema"]
    name: str | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None


Format = Annotated[TextFormat | ObjectFormat | SchemaFormat, Field(discriminator="type")]


class TextOptions(Body):
    format: Format | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningOptions(Body):
    effort: Name | None = None
    summary: Name | None = None
    accepted: ClassVar[Mapping[str, NoEffect]] = {
        "generate_summary": NoEffect("reasoning is always whole"),
        "context": NoEffect("the chat template decides which reasoning stays"),
        "mode": NoEffect("a model reasons in one way", ("standard",)),
    }


class FunctionTool(Body):
    type: Literal["function"]
    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    accepted: ClassVar[Mapping[str, NoEffect]] = {
        "output_schema": NoEffect("it tells code how to read outputs, and models do not see it"),
        "allowed_callers": NoEffect("models call functions directly", (["direct"],)),
        "defer_loading": NoEffect("all tools are there from the start", (False,)),
        "async": NoEffect("an answer ends where its calls do", (False,)),
    }

    def to_tool(self) -> Tool:
        return Tool(self.name, self.parameters or {}, self.description or "", bool(self.strict))

    def as_json(self) -> Json:
        return {"type": "function", "name": self.name, "description": self.description,
                "parameters": self.parameters, "strict": self.strict}


AnyTool = Annotated[
    Annotated[FunctionTool, Tag("~function")],
    Discriminator(type_tag, custom_error_type="unsupported_value",
                  custom_error_message=f"tools have type function: {_NO_BUILT_IN}"),
]


class NamedFunction(Body):
    type: Literal["function"]
    name: Name


class AllowedTools(Body):
    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedFunction], MaxItems(MAX_TOOLS), Field(min_length=1)]


class PlainChoice(Body):
    """A choice by type alone, which LiteLLM's bridge from Anthropic's API sends."""

    type: Literal["none", "auto", "required"]


def _choice_kind(value: Any) -> str | None:
    kind = type_tag(value)
    return "~plain" if kind in ("~none", "~auto", "~required") else kind


_ToolChoice = Annotated[
    Annotated[NamedFunction, Tag("~function")] | Annotated[AllowedTools, Tag("~allowed_tools")]
    | Annotated[PlainChoice, Tag("~plain")],
    Discriminator(_choice_kind, custom_error_type="unsupported_value",
                  custom_error_message="tool_choice is none, auto, required, a function or "
                  f"allowed_tools: {_NO_BUILT_IN}"),
]
Choice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("~text")]
    | Annotated[_ToolChoice, Tag("~other")], TEXT_OR_OTHER]
_LOGPROBS: Final = "message.output_text.logprobs"
Included = Literal[
    "message.output_text.logprobs",
    "web_search_call.results", "web_search_call.action.sources", "code_interpreter_call.outputs",
    "computer_call_output.output.image_url", "file_search_call.results",
    "message.input_image.image_url", "reasoning.encrypted_content",
]


_MAX_CHARACTERS = 1024  # of a name that a response repeats


class StreamOptions(Body):
    accepted: ClassVar[Mapping[str, NoEffect]] = {
        "include_obfuscation": NoEffect("it pads events against listeners; there is no padding"),
    }


Metadata = Annotated[dict[Annotated[str, Field(max_length=64)],
                          Annotated[str, Field(max_length=512)]], Field(max_length=16)]


class ResponsesBody(Body):
    """Of `include` only log probabilities change an answer. The others concern hosted tools, images
    and encrypted reasoning, which answers here never have."""

    model: Name
    input: Input
    instructions: str | None = None
    max_output_tokens: Integer | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: Integer | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: Annotated[list[AnyTool], MaxItems(MAX_TOOLS)] | None = None
    tool_choice: Choice | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    store: bool | None = None
    previous_response_id: Name | None = None
    metadata: Metadata | None = None
    include: Annotated[list[Included], MaxItems(16)] | None = None
    # Beyond OpenAI's fields, as in chat completions.
    seed: Integer | None = None
    stop: str | Annotated[list[str], MaxItems(16)] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    top_k: Integer | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    stop_token_ids: Annotated[list[Integer], MaxItems(64)] | None = None
    ignore_eos: bool | None = None
    min_tokens: Integer | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    accepted: ClassVar[Mapping[str, NoEffect]] = {
        "user": NoEffect("everybody gets the same answers"),
        "safety_identifier": NoEffect("everybody gets the same answers"),
        "service_tier": NoEffect("all requests have one tier"),
        "prompt_cache_key": NoEffect("the prefix cache finds equal prompts by itself"),
        "prompt_cache_retention": NoEffect("the prefix cache finds equal prompts by itself"),
        "prompt_cache_options": NoEffect("the prefix cache finds equal prompts by itself"),
        "background": NoEffect("an answer comes in the response to its request", (False,)),
        "max_tool_calls": NoEffect(f"it counts calls of built-in tools: {_NO_BUILT_IN}"),
        "truncation": NoEffect("a prompt that is too long is an error, and never cut",
                              ("disabled",)),
        "client_metadata": NoEffect("it is for the logs of a service"),
    }
    refused: ClassVar[Mapping[str, str]] = {
        "conversation": "there are no conversations here: previous_response_id goes on with one",
        "prompt": "there are no stored prompts here",
        "context_management": "a prompt that is too long is an error, and never compacted",
        "moderation": "there is no moderation here",
        "max_tokens": "in this API its name is max_output_tokens",
        "max_completion_tokens": "in this API its name is max_output_tokens",
        "messages": "in this API its name is input",
        "response_format": "in this API its name is text.format",
        "n": "this API gives one answer",
    }

    @property
    def wants_logprobs(self) -> bool:
        return self.top_logprobs is not None or _LOGPROBS in (self.include or ())

    @property
    def wants_store(self) -> bool:
        return self.store is not False

    @property
    def parallel(self) -> bool:
        return self.parallel_tool_calls is not False

    def items(self) -> list[Json]:
        """The items of this request. References stay references."""
        if isinstance(self.input, str):
            return [{"id": None, "type": "message", "role": "user", "status": "completed",
                     "content": [{"type": "input_text", "text": self.input}]}]
        return [item.as_item() for item in self.input]

    def to_chat_request(self, items: Sequence[Json]) -> ChatRequest:
        """`items` are those of the whole chat, with references resolved."""
        tools, choice = self._choice([tool.to_tool() for tool in self.tools or ()])
        messages = build_messages(items, self.instructions)
        return ChatRequest(messages, [self._params()], tools, choice, self._options())

    def _choice(self, tools: list[Tool]) -> tuple[list[Tool], ToolChoice]:
        """The allowed tools and the choice. Some clients send a choice without tools."""
        names = {tool.name for tool in tools}
        choice = self.tool_choice
        match choice.type if isinstance(choice, PlainChoice) else choice:
            case NamedFunction(name=name):
                _check_known([name], names)
                return tools, ToolChoice("named", name, self.parallel)
            case AllowedTools(mode=mode, tools=allowed):
                allowed_names = {tool.name for tool in allowed}
                _check_known(allowed_names, names)
                tools = [tool for tool in tools if tool.name in allowed_names]
                return tools, ToolChoice(mode, None, self.parallel)
            case kind if tools:
                return tools, ToolChoice(kind or "auto", None, self.parallel)
            case _:
                return tools, ToolChoice("none", None, self.parallel)

    def _params(self) -> SamplingParams:
        names = {f.name for f in fields(SamplingParams)} & type(self).model_fields.keys()
        given: dict[str, Any] = {name: getattr(self, name) for name in names}
        given["max_tokens"] = self.max_output_tokens
        given["logprobs"] = (self.top_logprobs or 0) if self.wants_logprobs else None
        match self.text.format if self.text is not None else None:
            case ObjectFormat():
                given["json_schema"] = {"type": "object"}
            case SchemaFormat(schema_=schema):
                given["json_schema"] = schema
            case _:
                pass
        if self.seed is not None and self.seed < 0:
            given["seed"] = None
        return SamplingParams(**{name: v for name, v in given.items() if v is not None})

    def _options(self) -> dict[str, Any]:
        text, reasoning = self.text or TextOptions(), self.reasoning or ReasoningOptions()
        return template_options(self.chat_template_kwargs, verbosity=text.verbosity,
                                reasoning_effort=reasoning.effort)

    def echo(self, is_stored: bool) -> Json:
        """The fields of the request that the response repeats."""

        def extra(name: str) -> str | None:
            value = (self.model_extra or {}).get(name)
            return value[:_MAX_CHARACTERS] if isinstance(value, str) else None

        text, reasoning = self.text or TextOptions(), self.reasoning or ReasoningOptions()
        form: Json = {"type": "text"} if text.format is None else text.format.model_dump(
            by_alias=True)
        choice = self.tool_choice or "auto"
        if isinstance(choice, PlainChoice):
            choice = choice.type
        return {
            "instructions": self.instructions, "max_output_tokens": self.max_output_tokens,
            "max_tool_calls": None, "metadata": self.metadata or {},
            "parallel_tool_calls": self.parallel,
            "previous_response_id": self.previous_response_id,
            "prompt_cache_key": extra("prompt_cache_key"),
            "reasoning": {"effort": reasoning.effort, "summary": reasoning.summary},
            "safety_identifier": extra("safety_identifier"), "service_tier": "default",
            "store": is_stored,
            "temperature": 1.0 if self.temperature is None else self.temperature,
            "text": {"format": form, "verbosity": text.verbosity or "medium"},
            "tool_choice": choice if isinstance(choice, str) else choice.model_dump(),
            "tools": [tool.as_json() for tool in self.tools or ()],
            "top_logprobs": self.top_logprobs or 0,
            "top_p": 1.0 if self.top_p is None else self.top_p, "truncation": "disabled",
            "user": extra("user"),
        }


def _check_known(chosen: Iterable[str], names: set[str]) -> None:
    for name in chosen:
        if name not in names:
            raise BadParameter(f"tool_choice names {name[:80]!r}, which is not in tools")
