"""What every way to ask for a chat comes to: the bodies of chat completions, responses and messages
all become a `ChatRequest`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..engine.sampling_params import SamplingParams
from ..errors import BadParameter

_OWN_OPTIONS = {"messages", "tools", "prompt", "add_generation_prompt"}  # of the server


@dataclass(frozen=True)
class Tool:
    """A function that the answer may call. `parameters` is the JSON schema of its arguments."""

    name: str
    parameters: Mapping[str, Any]
    description: str = ""
    strict: bool = False

    def as_openai(self) -> dict[str, Any]:
        """As chat templates take it."""
        function: dict[str, Any] = {"name": self.name, "description": self.description,
                                    "parameters": self.parameters}
        return {"type": "function", "function": function}


@dataclass(frozen=True)
class ToolChoice:
    """`none`: text only; `auto`: text or calls; `required`: one call or more; `named`: one call of
    `name`. Without `parallel` there is at most one call."""

    kind: Literal["none", "auto", "required", "named"] = "auto"
    name: str | None = None
    parallel: bool = True


@dataclass(frozen=True)
class ChatRequest:
    """`messages` are those of OpenAI's chat API, as templates take them: `content` is text, or None
    beside `tool_calls`, whose `arguments` are parsed JSON objects; role `tool` has `tool_call_id`
    and `content`. `params`: of each choice. `template_options` go to the template."""

    messages: Sequence[Mapping[str, Any]]
    params: Sequence[SamplingParams]
    tools: Sequence[Tool] = ()
    tool_choice: ToolChoice = ToolChoice("none")
    template_options: Mapping[str, Any] = field(default_factory=dict)


def template_options(given: Mapping[str, Any] | None, **fields: Any) -> dict[str, Any]:
    """For the template: `chat_template_kwargs` as they are given, and fields that are not None."""
    options = dict(given or {})
    if wrong := _OWN_OPTIONS & options.keys():
        raise BadParameter(f"chat_template_kwargs has {min(wrong)!r}",
                           hint="the server gives it to the template")
    return options | {name: value for name, value in fields.items() if value is not None}
