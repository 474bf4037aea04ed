"""Grammars of answers that may call tools, in llguidance's Lark.

Arguments follow the schemas of their tools. `call_parser.py` parses such answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from ....errors import BadGrammar, BadTool, EventTensorError
from ...engine.grammar_source import grammar_source
from ...engine.sampling_params import SamplingParams
from ..chat_request import Tool, ToolChoice
from ..reasoning import BEGIN as THINK
from ..reasoning import Thinking
from .argument_schema import argument_rule
from .json_calls import JsonCallForm, split_lexemes

MAX_CALLS = 64  # in one answer
MAX_SCHEMA_CHARACTERS = 100_000  # of all tools of a request
_REASONING = rf"""thought: /[ \n]{{0,8}}{THINK}/ thought_rest
thought_rest: reasoning /[ \n]{{0,8}}/
reasoning[lazy]: /(?s:.*)<\/think>/"""
# An answer without reasoning must not start like reasoning, or a call inside it would count.
_THOUGHT = rf"\s*{THINK}(?s:.*)"
_STARTS = {Thinking.never: "answer", Thinking.allowed: "thought? answer",
           Thinking.opened: "thought_rest answer"}


def answer_grammar(content: str, thinking: Thinking) -> str:
    """The grammar of reasoning followed by `content`, which is in Lark."""
    return "\n".join(_rules(thinking, f"answer: {content}"))


def call_grammar(
    form: JsonCallForm, tools: Sequence[Tool], choice: ToolChoice, content: str | None,
    thinking: Thinking,
) -> str:
    """The grammar of calls to `tools`, which are those that the choice allows."""
    rules = [f"HEAD: {' | '.join(map(_literal, form.heads))}", *_tool_rules(form, tools)]
    if form.excludes_text:
        rules.append(r"FIRST: /[ \n]{0,8}/ HEAD")
        first = f"{form.tag}? FIRST tool" if form.tag else "FIRST tool"
    else:
        first = f"{_literal(form.begin)} HEAD tool"
    more = f" ({_literal(form.between + form.begin)} HEAD tool){{0,{MAX_CALLS - 1}}}"
    if not choice.parallel or choice.kind == "named":
        more = ""
    if choice.kind != "auto":
        rules.append(f"answer: {first}{more}")
    elif content is not None:
        rules += _content_or_calls(form, content, first + more)
    else:
        rules += _text_or_calls(form, thinking, first + more, more)
    return "\n".join(_rules(thinking, *rules))


def _content_or_calls(form: JsonCallForm, content: str, calls: str) -> list[str]:
    """If both are JSON objects, the usual head means content."""
    if not form.excludes_text:
        return [f"answer: {content} | {calls}"]
    if form.tag:
        return [f"answer: {content} | {calls.replace(f'{form.tag}?', form.tag)}"]
    return [f"answer: {content} | {calls.replace('FIRST', _literal(form.heads[-1]))}"]


def _text_or_calls(form: JsonCallForm, thinking: Thinking, calls: str, more: str) -> list[str]:
    other = _except(_THOUGHT if thinking is Thinking.allowed else "",
                 _call_start(form) if form.excludes_text else "")
    text = f"TEXT: /(?s:.*)/{other}"
    if form.excludes_text:
        return [text, f"answer: TEXT | {calls}"]
    return [text, f"CALL_START: /(?s:.*){re.escape(form.begin)}/{other}",
            "call_start[lazy]: CALL_START", f"answer: TEXT | call_start HEAD tool{more}"]


def _rules(thinking: Thinking, *rules: str) -> Iterator[str]:
    yield f"start: {_STARTS[thinking]}"
    if thinking is not Thinking.never:
        yield _REASONING
    yield from rules


def _tool_rules(form: JsonCallForm, tools: Sequence[Tool]) -> Iterator[str]:
    """Each tool has its own line, because errors name the line."""
    some = " | ".join(f"tool_{k}" for k in range(len(tools)))
    yield f"tool: ({some}) {_literal('}' + form.end)}"
    size = 0
    for k, tool in enumerate(tools):
        arguments = argument_rule(tool)
        size += len(arguments)
        if size > MAX_SCHEMA_CHARACTERS:
            raise BadTool(f"the schemas of tools have more than {MAX_SCHEMA_CHARACTERS} characters",
                          hint="give fewer tools, or smaller ones")
        before = f'{json.dumps(tool.name)}, "{form.key}": '
        yield f"tool_{k}: {_literal(before)} {arguments}"


def blame_tool(error: BadGrammar, grammar: str, tools: Sequence[Tool]) -> EventTensorError:
    """The error with its tool, found by the line in the message or by compiling each tool alone."""
    at = re.search(r"\bat (\d+)\(\d+\): (failed to compile JSON schema: )?", error.message)
    if at is not None:
        line = grammar.splitlines()[int(at[1]) - 1 :][:1]
        found = [tools[int(k)] for k in re.findall(r"^tool_(\d+): ", "".join(line))]
    else:
        found = [tool for tool in tools if _fails(tool)][:1]
    if not found:
        return error
    cause = error.message[at.end() :] if at is not None else error.message
    return BadTool(f"the parameters of tool {found[0].name!r} cannot be used: {cause}",
                   hint=error.hint)


def _fails(tool: Tool) -> bool:
    try:
        grammar_source(SamplingParams(grammar=f"start: {argument_rule(tool)}"))
    except BadGrammar:
        return True
    return False


# ---- parts of Lark -------------------------------------------------------------------------------


def _literal(text: str) -> str:
    return json.dumps(text) if text else ""


def _call_start(form: JsonCallForm) -> str:
    """A regex for the start of a call, with any white space."""
    spaced = [r"\s*".join(map(re.escape, split_lexemes(head))) for head in form.heads]
    return rf"\s*({'|'.join(spaced)})(?s:.*)"


def _except(*patterns: str) -> str:
    return "".join(f" & ~/{p.replace('/', chr(92) + '/')}/" for p in patterns if p)
