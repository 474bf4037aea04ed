"""Which answers grammars of calls take, for each choice, syntax and way to think."""

from __future__ import annotations

import json
from functools import cache
from random import Random

import numpy as np
import pytest
from hypothesis import given

from eventtensor.errors import BadGrammar, BadTool
from eventtensor.llm.engine.grammar import Grammars
from eventtensor.llm.engine.sampling_params import SamplingParams
from eventtensor.llm.serve.chat_format import ChatFormat
from eventtensor.llm.serve.chat_request import ChatRequest, Tool, ToolChoice
from eventtensor.llm.serve.deltas import ParsedAnswer
from tests.support.chat_templates import LLAMA_3_2, QWEN3, SMOLLM2, THINKER, byte_tokenizer
from tests.unit.test_call_parser import PIECES

TREE = {"type": "object", "properties": {"name": {"type": "string"}, "kids": {
    "type": "array", "items": {"$ref": "#/$defs/tree"}}}, "required": ["name"]}
TOOLS = [
    Tool("get", {"type": "object", "properties": {"n": {"type": "integer", "maximum": 9}},
                 "required": ["n"]}),
    Tool("get_more", {"properties": {"t": {"$ref": "#/$defs/tree"}}, "$defs": {"tree": TREE}}),
    Tool("now", {}), Tool("N-0_" + "x" * 60, {"type": "object"}),
]
TEMPLATES = {"hermes": QWEN3, "llama3_json": LLAMA_3_2}


@cache
def grammars(template):
    tokenizer = byte_tokenizer(template)
    return tokenizer, Grammars(tokenizer, tokenizer.vocab, frozenset(tokenizer.eos))


def grammar_of(template, choice, tools=TOOLS, params=None, additional=False, **options):
    tokenizer, known = grammars(template)
    asked = ChatRequest([{"role": "user", "content": "a"}], [params or SamplingParams()], tools,
                        choice, options)
    made = ChatFormat.for_tokenizer(tokenizer, additional_properties=additional)
    messages, given = made.render(asked)
    form = made.answer_format(asked, tokenizer.chat(messages, **given))
    return form.params[0], known, form.explain


def accepts(found, text):
    """True: as a whole answer; None: as a begin of one; False: not at all."""
    params, known, _ = found
    if not params.has_grammar:
        return True
    grammar, ids = known.compile(params), known._tokenizer.encode(text)
    for token in ids:
        if not grammar.allowed()[token // 8] >> token % 8 & 1:
            return False
        grammar.accept(token)
    return grammar.is_over or bool(grammar.allowed()[1 // 8] >> 1 & 1) or None


def call(syntax, name, arguments):
    if syntax == "hermes":
        return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'
    return f'{{"name": "{name}", "parameters": {arguments}}}'


def both(syntax, *calls):
    return {"hermes": "\n", "llama3_json": "; "}[syntax].join(calls)


RIGHT = [("get", '{"n": 3}'), ("get", '{ "n":3 }'), ("now", "{}"), (TOOLS[3].name, '{"a": [1]}'),
         ("get_more", '{"t": {"name": "a", "kids": [{"name": "b", "kids": []}]}}')]
WRONG = [("get", "{}"), ("get", '{"n": 30}'), ("get", '{"n": 3, "m": 1}'), ("now", '{"a": 1}'),
         ("got", "{}"), ("get_more", '{"t": {"kids": []}}'), ("get", "[]"), ("get", '"{}"')]
AUTO, REQUIRED, NAMED = ToolChoice("auto"), ToolChoice("required"), ToolChoice("named", "get")


@pytest.mark.parametrize("syntax", TEMPLATES)
@pytest.mark.parametrize("choice", [AUTO, REQUIRED, NAMED], ids=lambda c: c.kind)
def test_calls_keep_to_the_schemas_of_their_tools(syntax, choice):
    found = grammar_of(TEMPLATES[syntax], choice)
    for name, arguments in RIGHT:
        wanted = choice is not NAMED or name == "get"
        assert accepts(found, call(syntax, name, arguments)) is wanted, (name, arguments)
    for name, arguments in WRONG:
        assert accepts(found, call(syntax, name, arguments)) is False, (name, arguments)


@pytest.mark.parametrize("syntax", TEMPLATES)
def test_the_choice_says_whether_text_may_come_and_how_many_calls(syntax):
    one = call(syntax, "get", '{"n": 1}')
    two, text = both(syntax, one, one), "Hello < {there}"
    takes = {c: [accepts(grammar_of(TEMPLATES[syntax], c), t) for t in (text, one, two)]
             for c in (AUTO, REQUIRED, NAMED, ToolChoice("auto", None, False),
                       ToolChoice("required", None, False), ToolChoice("none"))}
    assert list(takes.values()) == [
        [True, True, True], [False, True, True], [False, True, False], [True, True, False],
        [False, True, False], [True, True, True]]


def test_text_may_come_before_calls_between_tags_and_none_behind():
    found = grammar_of(QWEN3, AUTO)
    one = call("hermes", "now", "{}")
    assert accepts(found, f"I look.\n\n{one}") is True
    assert accepts(found, f"{one} and") is False
    assert accepts(found, "a <tool_call>") is None and accepts(found, "<tool_call>a") is False
    assert accepts(grammar_of(QWEN3, REQUIRED), f"I look. {one}") is False


def test_a_bare_call_is_a_whole_answer():
    found = grammar_of(LLAMA_3_2, AUTO)
    one = call("llama3_json", "now", "{}")
    assert accepts(found, f"<|python_tag|>{one}") is True
    assert accepts(found, f"\n{one}") is True
    assert accepts(found, '{"type": "function", ' + one[1:]) is True
    assert accepts(found, f"{one} and") is False
    assert accepts(found, '{"names": [1]}') is True and accepts(found, f"See {one}") is True


def test_reasoning_comes_first_where_the_model_thinks():
    one = call("hermes", "now", "{}")
    text = f"<think>I might {one}</think>\n\n"
    for choice in (AUTO, REQUIRED):
        may, must, off = (grammar_of(QWEN3, choice), grammar_of(THINKER, choice),
                          grammar_of(QWEN3, choice, enable_thinking=False))
        assert accepts(may, text + one) is accepts(may, one) is True
        assert accepts(must, text.removeprefix("<think>") + one) is True
        assert accepts(off, one) is True and accepts(off, text + one) is False
        assert accepts(may, "<think>a") is accepts(must, "a") is accepts(must, one) is None
        assert accepts(may, text + "Yes.") is (choice is AUTO)


SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer"}},
          "required": ["name", "n"], "additionalProperties": False}
FORMS = [
    ({"json_schema": SCHEMA}, '{"name": "a", "n": 1}', '{"name": "a"}'),
    ({"regex": "[a-z]+/x"}, "ab/x", "ab/y"), ({"choice": ["red", "green"]}, "green", "blue"),
    ({"grammar": 'start: word+\nword: "a" | "bc"'}, "abca", "acb"),
]


@pytest.mark.parametrize("syntax", TEMPLATES)
@pytest.mark.parametrize("form, right, wrong", FORMS, ids=lambda f: next(iter(f)))
def test_an_answer_without_calls_keeps_to_its_own_grammar(syntax, form, right, wrong):
    found = grammar_of(TEMPLATES[syntax], AUTO, params=SamplingParams(**form))
    one = call(syntax, "get", '{"n": 1}')
    tag = "<|python_tag|>" if syntax == "llama3_json" else ""
    assert accepts(found, right) is accepts(found, tag + one) is True
    assert accepts(found, wrong) in (False, None) and accepts(found, "Hello") is False
    only = grammar_of(TEMPLATES[syntax], REQUIRED, params=SamplingParams(**form))
    assert accepts(only, one) is True and accepts(only, right) is False


@pytest.mark.parametrize("tools", [TOOLS, ()])
def test_the_schema_of_an_answer_is_closed_beside_calls_and_after_reasoning(tools):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    for additional in (False, True):
        found = grammar_of(QWEN3, AUTO if tools else ToolChoice("none"), tools,
                           SamplingParams(json_schema=schema), additional)
        assert accepts(found, "<think>a</think>" + '{"n": 1}') is True
        assert accepts(found, '{"n": 1, "m": 2}') is additional


@pytest.mark.parametrize("form, right, wrong", FORMS, ids=lambda f: next(iter(f)))
def test_reasoning_may_come_before_any_grammar(form, right, wrong):
    params = SamplingParams(**form)
    for template, begin in ((QWEN3, ""), (QWEN3, "<think>well</think>\n\n"), (THINKER, "</think>")):
        found = grammar_of(template, ToolChoice("none"), (), params)
        assert accepts(found, begin + right) is True
        assert accepts(found, begin + wrong) in (False, None)
    plain = grammar_of(SMOLLM2, ToolChoice("none"), (), params)
    assert plain[0] == params


def test_128_tools_with_long_names_and_schemas_fit():
    tools = [Tool(f"tool_{k:03}_" + "n" * 55, {"type": "object", "description": "d" * 2000,
                                               "properties": {f"p{k}": {"type": "string"}}})
             for k in range(128)]
    found = grammar_of(QWEN3, AUTO, tools)
    assert accepts(found, call("hermes", tools[127].name, '{"p127": "a"}')) is True
    assert accepts(found, call("hermes", tools[127].name, '{"p126": "a"}')) is False
    with pytest.raises(BadTool, match="characters"):
        grammar_of(QWEN3, AUTO, [Tool("a", {"enum": ["x" * 200_000]})])


def test_tools_that_mention_grammars_are_tools():
    evil = '%json {" ::= \n start: "'
    tools = [Tool("a", {"type": "object", "description": evil, "properties": {evil: {
        "const": evil}}, "required": [evil]})]
    text = call("hermes", "a", json.dumps({evil: evil}))
    assert accepts(grammar_of(QWEN3, REQUIRED, tools), text) is True


@pytest.mark.parametrize("schema, cause", [
    ({"type": "nonsense"}, "nonsense"), ({"$ref": "#/$defs/none"}, "none"),
    ({"type": "string", "pattern": "("}, "regex"), ({"type": "integer", "multipleOf": 99991},
                                                    "multipleOf"),
    ({"type": "integer", "minimum": 3, "maximum": 1}, "a"),
])
def test_a_schema_that_cannot_be_used_is_told_with_its_tool(schema, cause):
    bad = Tool("bad", {"properties": {"a": schema}, "required": ["a"]})
    params, known, explain = grammar_of(QWEN3, AUTO, [*TOOLS, bad])
    with pytest.raises(BadGrammar) as e:
        known.compile(params)
    told = explain(e.value)
    assert isinstance(told, BadTool) and "'bad'" in told.message and cause in told.message


def test_strict_tools_keep_to_all_of_their_schema():
    odd = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    assert accepts(grammar_of(QWEN3, AUTO, [Tool("a", odd)]), call("hermes", "a", '{"a": [1, 1]}'))
    params, known, _ = grammar_of(QWEN3, AUTO, [Tool("a", odd, strict=True)])
    with pytest.raises(BadGrammar, match="uniqueItems"):
        known.compile(params)


SMALL = [Tool("get", {"type": "object", "properties": {
    "n": {"type": "integer", "minimum": 0, "maximum": 9}, "s": {"enum": ["<tool_call>", '"}', "é"]},
    "l": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}}, "required": ["s"]}),
    Tool("get_more", {})]


def walk(found, seed, most):
    """The text of random tokens that the grammar takes, up to its end or so many."""
    params, known, _ = found
    grammar, draw, tokens = known.compile(params), Random(seed), []
    while len(tokens) < most and not grammar.is_over:
        token = draw.choice(np.nonzero(np.unpackbits(grammar.allowed(), bitorder="little"))[0])
        if token == 1:
            break
        tokens.append(int(token))
        grammar.accept(tokens[-1])
    return known._tokenizer.decode(tokens), len(tokens) < most


@pytest.mark.parametrize("syntax", TEMPLATES)
@pytest.mark.parametrize("seed", range(12))
def test_whatever_a_grammar_lets_come_is_read_as_calls(syntax, seed):
    choice = ToolChoice("required", None, seed % 2 == 0)
    found = grammar_of(TEMPLATES[syntax], choice, SMALL, enable_thinking=False)
    calls, answer = ChatFormat.for_tokenizer(grammars(TEMPLATES[syntax])[0]).calls, ParsedAnswer()
    parser = calls.parser(SMALL)
    text, is_whole = walk(found, seed, 60 + 40 * seed)
    answer.add([d for c in text for d in parser.push(c)] + parser.end())
    assert answer.text == "" and (answer.calls or not is_whole)
    assert not is_whole or choice.parallel or len(answer.calls) == 1
    for number, made in enumerate(answer.calls):
        if is_whole or number + 1 < len(answer.calls):
            arguments = json.loads(made.arguments)
            assert arguments.keys() <= ({"n", "s", "l"} if made.name == "get" else set())
            assert made.name == "get_more" or arguments["s"] in ("<tool_call>", '"}', "é")


@pytest.mark.parametrize("syntax", TEMPLATES)
@given(text=PIECES)
def test_grammar_and_parser_agree_on_what_is_a_call(syntax, text):
    tools = [*TOOLS[:2], Tool("put", {"type": "object"})]
    found = grammar_of(TEMPLATES[syntax], AUTO, tools, enable_thinking=False)
    calls, answer = ChatFormat.for_tokenizer(grammars(TEMPLATES[syntax])[0]).calls, ParsedAnswer()
    parser = calls.parser(tools)
    answer.add([*parser.push(text), *parser.end()])
    if accepts(found, text) is True:
        assert "<tool_call>" not in answer.text or syntax == "llama3_json"
        assert all(json.loads(made.arguments) is not None for made in answer.calls)
        assert answer.text == text or answer.calls
        assert answer.text == "" or not answer.calls or syntax == "hermes"
