"""Answers with calls of tools, read as they come."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventtensor.llm.serve.chat_request import Tool
from eventtensor.llm.serve.deltas import CallDelta, ParsedAnswer, merge_deltas
from eventtensor.llm.serve.tools.hermes import Hermes
from eventtensor.llm.serve.tools.llama3_json import Llama3Json

TOOLS = [Tool("get", {}), Tool("get_more", {}), Tool("put", {})]
SYNTAXES = {"hermes": Hermes(""), "llama3_json": Llama3Json("")}


def written(syntax: str, name: str, arguments: str) -> str:
    if syntax == "hermes":
        return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'
    return f'{{"name": "{name}", "parameters": {arguments}}}'


def between(syntax: str) -> str:
    return "\n" if syntax == "hermes" else "; "


def read(syntax: str, *pieces: str, tools=TOOLS):
    """Deltas, with names in place of the random ids of calls."""
    parser = SYNTAXES[syntax].parser(tools)
    deltas = [d for piece in pieces for d in parser.push(piece)] + parser.end()
    return [CallDelta(d.index, d.name, d.name) if isinstance(d, CallDelta) else d for d in deltas]


def whole(deltas):
    answer = ParsedAnswer()
    answer.add(deltas)
    return answer.text, [(c.name, c.arguments) for c in answer.calls]


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_calls_are_read_one_after_another(syntax):
    some = between(syntax).join([written(syntax, "get", '{"a": "}\\"{"}'),
                                 written(syntax, "put", '{"b": [{}, []]}')])
    assert whole(read(syntax, some)) == (
        "", [("get", '{"a": "}\\"{"}'), ("put", '{"b": [{}, []]}')])
    assert whole(read(syntax, *some)) == whole(read(syntax, some))


def test_text_may_come_before_calls_and_blanks_between_are_no_content():
    call = written("hermes", "get", "{}")
    assert whole(read("hermes", f"I look. \n\n{call}\n")) == ("I look.", [("get", "{}")])
    assert whole(read("hermes", f"\n{call}\n\n{call} so")) == ("so", [("get", "{}")] * 2)


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_name_and_id_come_before_pieces_of_the_arguments(syntax):
    parser = SYNTAXES[syntax].parser(TOOLS)
    came = [d for c in written(syntax, "get_more", '{"a": 12}') for d in parser.push(c)]
    assert came[0].name == "get_more" and came[0].id.startswith("call_")
    assert [d.text for d in came[1:]] == list('{"a": 12}')


@pytest.mark.parametrize("syntax", SYNTAXES)
@pytest.mark.parametrize("text", [
    "", "hello", "{", '{"name": 1}', '{"name": "unknown", "parameters": {}}', "a < b", "<tool_cal",
    "<tool_call> is a mark", '<tool_call>\n{"name": "unknown", "arguments": {}}\n</tool_call>',
    '{"names": 2}', '{"name": "get"}', '{"name": "get", "parameters": 3}', " \n x \n ", "\n\n",
    '<tool_call>{"name": "get", "arguments": "{}"}</tool_call>', "<<tool_call<tool_call>>",
    '[{"name": "get", "parameters": {}}]',
])
def test_what_is_no_call_stays_text_as_it_is(syntax, text):
    assert whole(read(syntax, text)) == (text, [])
    assert whole(read(syntax, *text)) == (text, [])


@pytest.mark.parametrize("syntax", SYNTAXES)
def test_a_call_that_is_cut_is_a_call_and_no_text(syntax):
    text = written(syntax, "put", '{"a": [1, 2]}')
    named, begun = text.index('"put') + 2, text.index('{"a')
    for end in range(named, len(text) + 1):
        said, calls = whole(read(syntax, text[:end]))
        assert said == "" and [name for name, _ in calls] == ["put"]
        assert '{"a": [1, 2]}'.startswith(calls[0][1])
        assert bool(calls[0][1]) == (end > begun)


def test_a_cut_name_that_several_tools_begin_with_is_nothing():
    assert whole(read("hermes", '<tool_call>\n{"name": "get')) == ("", [])
    assert whole(read("hermes", '<tool_call>\n{"name": "get_')) == ("", [("get_more", "")])


def test_only_an_answer_that_begins_with_one_has_bare_calls():
    text = 'See: {"name": "get", "parameters": {}}'
    assert whole(read("llama3_json", text)) == (text, [])
    text = '{"type": "function", "name": "get", "parameters": {"x": 1}}'
    assert whole(read("llama3_json", text)) == ("", [("get", '{"x": 1}')])


def test_a_begin_of_a_call_is_held_back_and_nothing_else():
    parser = Hermes("").parser(TOOLS)
    assert [[d.text for d in parser.push(t)] for t in ("a", " ", "<b", "<tool", "x", "y")] == [
        ["a"], [], [" <b"], [], ["<toolx"], ["y"]]


PIECES = st.lists(st.sampled_from([
    "<tool_call>", "</tool_call>", "\n", " ", '{"name": ', '"get"', '"get_more"', ', "arguments": ',
    ', "parameters": ', "{", "}", '{"a": "\\"}"}', "text", "<", "tool_call>", "; ", "[", "]", '"',
    '<tool_call>\n{"name": "get", "arguments": {', '{"name": "put", "parameters": {"', "\\",
    '{"name": "put", "parameters": {}}', "}\n</tool_call>", "é", "\x00",
]), max_size=24).map("".join)


@pytest.mark.parametrize("syntax", SYNTAXES)
@given(text=PIECES, cuts=st.lists(st.integers(0, 200), max_size=12))
def test_any_cut_of_an_answer_gives_the_same(syntax, text, cuts):
    at = sorted({0, len(text), *(min(c, len(text)) for c in cuts)})
    once = list(merge_deltas(read(syntax, text)))
    assert list(merge_deltas(read(syntax, *(text[a:b] for a, b in pairwise(at))))) == once
    assert list(merge_deltas(read(syntax, *text))) == once


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner,
                                                                max_size=3), max_leaves=8)
CALLS = st.lists(st.tuples(st.sampled_from([t.name for t in TOOLS]),
                           st.dictionaries(st.text(max_size=4), JSON, max_size=3).map(json.dumps)),
                 min_size=1, max_size=4)


@pytest.mark.parametrize("syntax", SYNTAXES)
@given(calls=CALLS)
def test_calls_that_are_written_are_read_back(syntax, calls):
    text = between(syntax).join(written(syntax, *call) for call in calls)
    assert whole(read(syntax, *text)) == ("", calls)
