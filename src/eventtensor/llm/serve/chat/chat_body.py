"""The body of a chat completion request, and its conversion to a `ChatRequest`.

Sampling fields are in `sampling_fields.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from ....errors import BadParameter
from ...engine.sampling_params import SamplingParams
from ..call_arguments import CallArguments, parse_arguments
from ..chat_request import ChatRequest, Tool, ToolChoice, template_options
from ..sampling_fields import SamplingFields
from ..strict_body import Body, Integer, MaxItems, Name, NoEffect

MAX_TOOLS = 128
_NO_TOOL_CHOICE = ToolChoice("none")


_FROM_SERVERS = "servers add it to answers, and clients send answers back"
_FROM_LITELLM = "LiteLLM adds it to answers, and sends them back"


class TextPart(Body):
    type: Literal["text"]
    text: str
    accepted: ClassVar[Mapping[str, NoEffect]] = {
        "cache_control": NoEffect("the prefix cache finds equal prompts by itself"),
    }


class CalledFunction(Body):
    name: Name
    arguments: CallArguments


class MessageCall(Body):
    id: Name
    type: Literal["function"] = "function"
    function: CalledFunction
    accepted: ClassVar[Mapping[str, NoEffect]] = {
        "index": NoEffect("calls are in the order of the list"),
        "provider_specific_fields": NoEffect(_FROM_LITELLM),
    }

    def to_call(self) -> dict[str, Any]:
        arguments = parse_arguments(self.function.arguments)
        return {"id": self.id, "type": "function",
                "function": {"name": self.function.name, "arguments": arguments}}


class ChatMessage(Body):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[TextPart], MaxItems(1 << 12)] | None = None
    name: str | None = None
    tool_calls: Annotated[list[MessageCall], MaxItems(128)] | None = None
    tool_call_id: Name | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None  # the newer name of reasoning_content
    accepted: ClassVar[Mapping[str, NoEffect]] = {
        "refusal": NoEffect(_FROM_SERVERS, ("",)), "annotations": NoEffect(_FROM_SERVERS),
        "audio": NoEffect(_FROM_SERVERS, ({},)), "function_call": NoEffect(_FROM_SERVERS, ({},)),
        "provider_specific_fields": NoEffect(_FROM_LITELLM),
    }

    def to_message(self) -> dict[str, Any]:
        """The message in the form that templates expect."""
        parts = self.content
        content = "".join(p.text for p in parts) if isinstance(parts, list) else parts
        if content is None and not (self.role == "assistant" and self.tool_calls):
            if self.role != "assistant":
                raise BadParameter(f"messages: one of role {self.role} has no content",
                                   hint="only an assistant's calls of tools need none")
            content = ""
        found: dict[str, Any] = {
            "role": "system" if self.role == "developer" else self.role,
            "content": content}
        if self.tool_calls:
            found["tool_calls"] = [call.to_call() for call in self.tool_calls]
        optional = {"name": self.name, "tool_call_id": self.tool_call_id,
                "reasoning_content": self.reasoning_content or self.reasoning}
        return found | {name: value for name, value in optional.items() if value is not None}


Messages = Annotated[list[ChatMessage], MaxItems(1 << 12)]


class FunctionBody(Body):
    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolBody(Body):
    type: Literal["function"]
    function: FunctionBody

    def to_tool(self) -> Tool:
        f = self.function
        return Tool(f.name, f.parameters or {}, f.description or "", bool(f.strict))


class NamedFunction(Body):
    name: Name


class NamedTool(Body):
    type: Literal["function"] = "function"
    function: NamedFunction


class ChatBody(SamplingFields):
    messages: Annotated[Messages, Field(min_length=1)]
    max_completion_tokens: Integer | None = None
    logprobs: bool | None = None
    top_logprobs: Integer | None = None
    tools: Annotated[list[ToolBody], MaxItems(MAX_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Name | None = None
    verbosity: Name | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    accepted: ClassVar[Mapping[str, NoEffect]] = {
        **SamplingFields.accepted,
        "modalities": NoEffect("answers are text", (["text"],)),
        "functions": NoEffect("tools replace it", ([],)),
        "function_call": NoEffect("tool_choice replaces it", ("auto", "none")),
        "add_generation_prompt": NoEffect("a chat continues with an answer", (True,)),
        "continue_final_message": NoEffect("a chat continues with an answer", (False,)),
        "add_special_tokens": NoEffect("the template gives control tokens", (False,)),
        "echo": NoEffect("an answer does not repeat its chat", (False,)),
        "separate_reasoning": NoEffect("reasoning is always separate", (True,)),
        "include_reasoning": NoEffect("reasoning is always separate", (True,)),
        "stream_reasoning": NoEffect("reasoning is always streamed", (True,)),
        "documents": NoEffect("templates get them by chat_template_kwargs", ([],)),
    }
    refused: ClassVar[Mapping[str, str]] = {
        **SamplingFields.refused,
        "audio": "this model gives text only",
        "web_search_options": "there is no search here",
        "chat_template": "the template is the model's own",
    }

    def to_chat_request(self) -> ChatRequest:
        tools = [tool.to_tool() for tool in self.tools or ()]
        options = template_options(self.chat_template_kwargs, verbosity=self.verbosity,
                                   reasoning_effort=self.reasoning_effort)
        return ChatRequest([m.to_message() for m in self.messages], self._params(), tools,
                           self._choice(tools), options)

    def _choice(self, tools: list[Tool]) -> ToolChoice:
        """The choice; `none` without tools, because some clients send a choice anyway."""
        parallel = self.parallel_tool_calls is not False
        match self.tool_choice:
            case NamedTool(function=NamedFunction(name=name)):
                if name not in {t.name for t in tools}:
                    raise BadParameter(f"tool_choice names {name[:80]!r}, which is not in tools")
                return ToolChoice("named", name, parallel)
            case kind if tools:
                return ToolChoice(kind or "auto", None, parallel)
            case _:
                return _NO_TOOL_CHOICE

    def _params(self) -> list[SamplingParams]:
        """If both names of the token limit are given, the smaller one counts."""
        limits = [x for x in (self.max_tokens, self.max_completion_tokens) if x is not None]
        if self.top_logprobs and not self.logprobs:
            raise BadParameter("top_logprobs is given, but logprobs is not true",
                               hint="set logprobs to true")
        first, *others = self.params(
            max_tokens=min(limits, default=None),
            logprobs=(self.top_logprobs or 0) if self.logprobs else None)
        if first.max_tokens == 0:
            return [first, *others]
        # All choices have one prompt, so the first one has its log probabilities.
        return [first, *(replace(p, prompt_logprobs=None) for p in others)]
