"""How one model is talked to: its syntax of calls, and how it thinks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..engine.sampling_params import SamplingParams
from ..errors import BadGrammar, BadOption, BadParameter, EventTensorError
from ..models.text.tokenizer import Tokenizer
from .chat_request import ChatRequest, Tool
from .deltas import OutputParser, PlainText
from .reasoning import Thinking, ThinkTags
from .tools.call_grammar import answer_grammar, blame_tool
from .tools.call_syntax import CallSyntax
from .tools.content_grammar import Content
from .tools.registry import find_syntax

_OWN_OPTIONS = {"messages", "tools", "add_generation_prompt"}
_LAST = 16  # tokens at the end of a prompt, which may open the reasoning


@dataclass(frozen=True)
class AnswerForm:
    """Of the answers to one request. `params` have the grammar that calls and reasoning make of
    their own one; `explain` says more of an error of it."""

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
    def of(
        cls, tokenizer: Tokenizer, tool_parser: str = "auto", reasoning_parser: str = "auto",
        additional_properties: bool = False,
    ) -> ChatFormat:
        """`additional_properties`: see `EngineOptions`."""
        template = tokenizer.tool_template or tokenizer.template or ""
        return cls(tokenizer, find_syntax(tool_parser, template, tokenizer.control_tokens),
                   _find_reasoning(reasoning_parser, template), additional_properties)

    def prompt(self, asked: ChatRequest) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Messages, and options, as the template gets them. It does not get tools that must not be
        called."""
        options = dict(asked.template_options)
        if wrong := _OWN_OPTIONS & options.keys():
            raise BadParameter(f"the options of the template have {min(wrong)!r}",
                               hint="the server gives it to the template")
        if options.get("reasoning_effort") == "none":
            options.setdefault("enable_thinking", False)
        tools = () if asked.tool_choice.kind == "none" else asked.tools
        messages, known = self.calls.prompt(asked.messages, tools)
        return messages, options | ({"tools": known} if known else {})

    def answer(self, asked: ChatRequest, tokens: Sequence[int]) -> AnswerForm:
        """`tokens`: of the prompt."""
        thinking, reasoning = self._thinking(tokens), self.reasoning
        tools = _allowed(asked)

        def make_parser() -> OutputParser:
            content = self.calls.parser(tools) if tools else PlainText()
            return content if reasoning is None else reasoning.parser(content, thinking)

        is_part = asked.tool_choice.kind == "auto" if tools else thinking is not Thinking.never
        content = Content.of(asked.params[0], self._additional) if is_part else None
        rule = None if content is None else content.rule
        lark: str | None = None
        if tools:
            lark = self.calls.grammar(tools, asked.tool_choice, rule, thinking)
        elif rule is not None:
            lark = answer_grammar(rule, thinking)
        params = asked.params
        if lark is not None:
            grammar = lark if content is None else content.within(lark)
            params = [replace(p, grammar=grammar, json_schema=None, regex=None, choice=None)
                      for p in params]

        def explain(error: BadGrammar) -> EventTensorError:
            return blame_tool(error, lark or "", tools)

        return AnswerForm(params, make_parser, explain)

    def _thinking(self, tokens: Sequence[int]) -> Thinking:
        if self.reasoning is None:
            return Thinking.never
        end = self._tokenizer.decode(tokens[-_LAST:], special=True)
        return self.reasoning.thinking(end)


def check_parsers(tool_parser: str, reasoning_parser: str) -> None:
    """Before a model is loaded for them."""
    find_syntax(tool_parser, "")
    _find_reasoning(reasoning_parser, "")


def _allowed(asked: ChatRequest) -> list[Tool]:
    """The tools that the answer may call."""
    match asked.tool_choice.kind:
        case "none":
            return []
        case "named":
            return [t for t in asked.tools if t.name == asked.tool_choice.name]
        case _:
            return list(asked.tools)


def _find_reasoning(name: str, template: str) -> ThinkTags | None:
    if name not in ("auto", "none", ThinkTags.name):
        raise BadOption(f"--reasoning-parser is {name[:80]!r}",
                        hint=f"one of auto, none, {ThinkTags.name}")
    wanted = name == ThinkTags.name or (name == "auto" and ThinkTags.fits(template))
    return ThinkTags() if wanted else None
