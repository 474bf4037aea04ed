"""Which answers may come where tools may be called, in Lark as llguidance reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...engine.params import SamplingParams
from ...errors import BadParameter, BadTool
from ..chat_request import Tool, ToolChoice
from ..reasoning import BEGIN as THINK
from ..reasoning import Thinking
from .json_calls import JsonCallForm, parts

MOST_CALLS = 64  # in one answer
MOST_SCHEMAS = 100_000  # characters, of all tools of a request
# Between the parts of arguments. A model must not go on with blanks for ever.
_BLANKS = r"[\x20\n\t]{0,16}"
_REASONING = rf"""thought: /[ \n]{{0,8}}{THINK}/ begun
begun: reasoning /[ \n]{{0,8}}/
reasoning[lazy]: /(?s:.*)<\/think>/"""
# Answers without reasoning do not begin as it does: else a call inside of it would count.
_THOUGHT = rf"\s*{THINK}(?s:.*)"
_STARTS = {Thinking.never: "answer", Thinking.allowed: "thought? answer",
           Thinking.begun: "begun answer"}


def content_rule(params: SamplingParams) -> str | None:
    """What the params say of an answer that calls nothing; None: it may be any text."""
    if params.json_schema is not None:
        return f"%json {_bounded(json.loads(str(params.json_schema)))}"
    if params.regex is not None:
        return f"/{_in_slashes(params.regex)}/"
    if params.choice is not None:
        return f"({' | '.join(_literal(text) for text in params.choice)})"
    if params.grammar is not None:
        raise BadParameter("a grammar is given beside tools, or to a model that thinks",
                           hint="a schema, a pattern or a choice can stand beside them")
    return None


def answer_grammar(content: str, thinking: Thinking) -> str:
    """`content`, in Lark, after the reasoning."""
    return "\n".join(_rules(thinking, f"answer: {content}"))


def call_grammar(
    form: JsonCallForm, tools: Sequence[Tool], choice: ToolChoice, content: str | None,
    thinking: Thinking,
) -> str:
    """Arguments keep to the schemas of their tools, which are those that the choice allows."""
    rules = [f"HEAD: {' | '.join(map(_literal, form.heads))}", *_tool_rules(form, tools)]
    if form.alone:
        rules.append(r"FIRST: /[ \n]{0,8}/ HEAD")
        first = f"{form.tag}? FIRST tool" if form.tag else "FIRST tool"
    else:
        first = f"{_literal(form.begin)} HEAD tool"
    more = f" ({_literal(form.between + form.begin)} HEAD tool){{0,{MOST_CALLS - 1}}}"
    if not choice.parallel or choice.kind == "named":
        more = ""
    if choice.kind != "auto":
        rules.append(f"answer: {first}{more}")
    elif content is not None:
        rules += _beside(form, content, first + more)
    else:
        rules += _with_text(form, thinking, first + more, more)
    return "\n".join(_rules(thinking, *rules))


def _beside(form: JsonCallForm, content: str, calls: str) -> list[str]:
    """Where both are JSON objects, content has the usual head."""
    if not form.alone:
        return [f"answer: {content} | {calls}"]
    if form.tag:
        return [f"answer: {content} | {calls.replace(f'{form.tag}?', form.tag)}"]
    return [f"answer: {content} | {calls.replace('FIRST', _literal(form.heads[-1]))}"]


def _with_text(form: JsonCallForm, thinking: Thinking, calls: str, more: str) -> list[str]:
    other = _but(_THOUGHT if thinking is Thinking.allowed else "",
                 _begins_as_call(form) if form.alone else "")
    text = f"TEXT: /(?s:.*)/{other}"
    if form.alone:
        return [text, f"answer: TEXT | {calls}"]
    return [text, f"BEGUN: /(?s:.*){re.escape(form.begin)}/{other}", "begun_call[lazy]: BEGUN",
            f"answer: TEXT | begun_call HEAD tool{more}"]


def _rules(thinking: Thinking, *rules: str) -> Iterator[str]:
    yield f"start: {_STARTS[thinking]}"
    if thinking is not Thinking.never:
        yield _REASONING
    yield from rules


def _tool_rules(form: JsonCallForm, tools: Sequence[Tool]) -> Iterator[str]:
    """Each has a line of its own: errors name the line."""
    some = " | ".join(f"tool_{k}" for k in range(len(tools)))
    yield f"tool: ({some}) {_literal('}' + form.end)}"
    size = 0
    for k, tool in enumerate(tools):
        schema = schema_text(tool)
        size += len(schema)
        if size > MOST_SCHEMAS:
            raise BadTool(f"the schemas of tools have more than {MOST_SCHEMAS} characters",
                          hint="give fewer tools, or smaller ones")
        before = f'{json.dumps(tool.name)}, "{form.key}": '
        yield f"tool_{k}: {_literal(before)} %json {schema}"


def schema_text(tool: Tool) -> str:
    """Of its arguments, which are an object."""
    schema = dict(tool.parameters)
    if not schema:
        schema = {"type": "object", "properties": {}, "additionalProperties": False}
    if schema.setdefault("type", "object") != "object":
        raise BadTool(f"the parameters of tool {tool.name!r} are no object",
                      hint='their schema has "type": "object"')
    try:
        return _bounded(schema)
    except (TypeError, ValueError, RecursionError) as e:
        raise BadTool(f"the parameters of tool {tool.name!r} are no JSON: {e}") from None


def _bounded(schema: Mapping[str, Any]) -> str:
    """With what llguidance shall do between the parts."""
    return json.dumps({**schema, "x-guidance": {"whitespace_pattern": _BLANKS}})


# ---- parts of Lark -------------------------------------------------------------------------------


def _literal(text: str) -> str:
    return json.dumps(text) if text else ""


def _begins_as_call(form: JsonCallForm) -> str:
    """With any blanks."""
    spaced = [r"\s*".join(map(re.escape, parts(head))) for head in form.heads]
    return rf"\s*({'|'.join(spaced)})(?s:.*)"


def _but(*patterns: str) -> str:
    return "".join(f" & ~/{_in_slashes(p)}/" for p in patterns if p)


def _in_slashes(pattern: str) -> str:
    return re.sub(r"(?<!\\)((?:\\\\)*)/", r"\1\/", pattern)
