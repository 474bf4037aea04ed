"""`ChatRequest`, the common form of chat requests. The bodies of chat completions, responses and
messages are converted to it; `chat_format.py` renders it for the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ...errors import BadParameter, BadTool
from ..engine.sampling_params import SamplingParams

_RESERVED_OPTIONS = {"messages", "tools", "prompt", "add_generation_prompt"}


@dataclass(frozen=True)
class Tool:
    """A function that the answer may call. `parameters` is the JSON schema of its arguments."""

    name: str
    parameters: Mapping[str, Any]
    description: str = ""
    strict: bool = False

    def as_openai(self) -> dict[str, Any]:
        """The form that chat templates expect."""
        function: dict[str, Any] = {"name": self.name, "description": self.description,
                                    "parameters": self.parameters}
        return {"type": "function", "function": function}


@dataclass(frozen=True)
class ToolChoice:
    """`none`: text only; `auto`: text or calls; `required`: at least one call; `named`: one call of
    `name`. Without `parallel` an answer has at most one call."""

    kind: Literal["none", "auto", "required", "named"] = "auto"
    name: str | None = None
    parallel: bool = True


@dataclass(frozen=True)
class ChatRequest:
    """`messages` have the form of OpenAI's chat API. `content` is text, or None beside
    `tool_calls`, whose `arguments` are parsed JSON objects. Role `tool` has `tool_call_id` and
    `content`. `params` has one entry per choice."""

    messages: Sequence[Mapping[str, Any]]
    params: Sequence[SamplingParams]
    tools: Sequence[Tool] = ()
    tool_choice: ToolChoice = ToolChoice("none")
    template_options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = set[str]()
        for tool in self.tools:
            if tool.name in known:
                raise BadTool(f"two tools have the name {tool.name!r}",
                              hint="a call says only the name of its tool")
            known.add(tool.name)


def template_options(given: Mapping[str, Any] | None, **fields: Any) -> dict[str, Any]:
    """Options for the template: `chat_template_kwargs`, and the fields that are not None."""
    options = dict(given or {})
    if wrong := _RESERVED_OPTIONS & options.keys():
        raise BadParameter(f"chat_template_kwargs has {min(wrong)!r}",
                           hint="the server gives it to the template")
    return options | {name: value for name, value in fields.items() if value is not None}
