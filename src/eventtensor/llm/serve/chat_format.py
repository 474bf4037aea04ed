"""How one model is prompted and how its answers are parsed: tool-call syntax and reasoning.

`ChatFormat` renders a `ChatRequest` for the chat template and makes the grammar and the parser of
its answers. Each syntax is a file in `tools/`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...errors import BadGrammar, BadOption, BadParameter, EventTensorError
from ..engine.sampling_params import SamplingParams
from ..text.tokenizer import Tokenizer
from .chat_request import ChatRequest, Tool
from .deltas import OutputParser, PlainText
from .reasoning import Thinking, ThinkTags
from .tools.call_grammar import answer_grammar, blame_tool
from .tools.call_syntax import CallSyntax
from .tools.content_grammar import ContentGrammar
from .tools.registry import find_syntax

_RESERVED_OPTIONS = {"messages", "tools", "add_generation_prompt"}
_TAIL_TOKENS = 16  # of a prompt; they show whether the template opened the reasoning


@dataclass(frozen=True)
class AnswerFormat:
    """How the answers to one chat are generated and parsed. The grammar in `params` covers calls
    and reasoning. `explain` names the tool that caused an error of the grammar."""

    params: Sequence[SamplingParams]
    make_parser: Callable[[], OutputParser]
    explain: Callable[[BadGrammar], EventTensorError]


class ChatFormat:
    def __init__(
        self, tokenizer: Tokenizer, calls: CallSyntax, reasoning: ThinkTags | None,
        additional_properties: bool,
    ) -> None:
        self.calls, self.reasoning, self._tokenizer = calls, reasoning, tokenizer
        self._additional = additional_properties

    @classmethod
    def for_tokenizer(
        cls, tokenizer: Tokenizer, tool_parser: str = "auto", reasoning_parser: str = "auto",
        additional_properties: bool = False,
    ) -> ChatFormat:
        """`additional_properties`: see `EngineOptions`."""
        template = tokenizer.tool_template or tokenizer.template or ""
        return cls(tokenizer, find_syntax(tool_parser, template, tokenizer.control_tokens),
                   _find_reasoning(reasoning_parser, template), additional_properties)

    def render(self, chat: ChatRequest) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Messages and options for the template. Tools are left out if none may be called."""
        options = dict(chat.template_options)
        if wrong := _RESERVED_OPTIONS & options.keys():
            raise BadParameter(f"the options of the template have {min(wrong)!r}",
                               hint="the server gives it to the template")
        if options.get("reasoning_effort") == "none":
            options.setdefault("enable_thinking", False)
        tools = () if chat.tool_choice.kind == "none" else chat.tools
        messages, template_tools = self.calls.render(chat.messages, tools)
        return messages, options | ({"tools": template_tools} if template_tools else {})

    def answer_format(self, chat: ChatRequest, prompt_tokens: Sequence[int]) -> AnswerFormat:
        thinking, reasoning = self._thinking(prompt_tokens), self.reasoning
        tools = _callable_tools(chat)

        def parse_parts() -> OutputParser:
            content = self.calls.parser(tools) if tools else PlainText()
            return content if reasoning is None else reasoning.parser(content, thinking)

        # Streams of plain text pass on what the engine says.
        has_parts = bool(tools) or thinking is not Thinking.never
        make_parser = parse_parts if has_parts else PlainText
        has_content = chat.tool_choice.kind == "auto" if tools else thinking is not Thinking.never
        content = (ContentGrammar.from_params(chat.params[0], self._additional) if has_content
                   else None)
        rule = None if content is None else content.rule
        lark: str | None = None
        if tools:
            lark = self.calls.grammar(tools, chat.tool_choice, rule, thinking)
        elif rule is not None:
            lark = answer_grammar(rule, thinking)
        params = chat.params
        if lark is not None:
            grammar = lark if content is None else content.embed(lark)
            params = [replace(p, grammar=grammar, json_schema=None, regex=None, choice=None)
                      for p in params]

        def explain(error: BadGrammar) -> EventTensorError:
            return blame_tool(error, lark or "", tools)

        return AnswerFormat(params, make_parser, explain)

    def _thinking(self, tokens: Sequence[int]) -> Thinking:
        if self.reasoning is None:
            return Thinking.never
        end = self._tokenizer.decode(tokens[-_TAIL_TOKENS:], special=True)
        return self.reasoning.thinking(end)


def check_parsers(tool_parser: str, reasoning_parser: str) -> None:
    """Checks the names before the weights load."""
    find_syntax(tool_parser, "")
    _find_reasoning(reasoning_parser, "")


def _callable_tools(chat: ChatRequest) -> list[Tool]:
    """The tools that the answer may call."""
    match chat.tool_choice.kind:
        case "none":
            return []
        case "named":
            return [t for t in chat.tools if t.name == chat.tool_choice.name]
        case _:
            return list(chat.tools)


def _find_reasoning(name: str, template: str) -> ThinkTags | None:
    if name not in ("auto", "none", ThinkTags.name):
        raise BadOption(f"--reasoning-parser is {name[:80]!r}",
                        hint=f"one of auto, none, {ThinkTags.name}")
    has_tags = name == ThinkTags.name or (name == "auto" and ThinkTags.fits(template))
    return ThinkTags() if has_tags else None
