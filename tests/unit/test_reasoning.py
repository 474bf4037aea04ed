"""Reasoning before an answer, read as it comes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventtensor.llm.serve.chat_request import Tool
from eventtensor.llm.serve.deltas import (
    CallDelta,
    ParsedAnswer,
    PlainText,
    ReasoningDelta,
    merge_deltas,
)
from eventtensor.llm.serve.reasoning import Thinking, ThinkTags
from eventtensor.llm.serve.tools.hermes import Hermes

TOOLS = [Tool("get", {})]
CALL = '<tool_call>\n{"name": "get", "arguments": {"a": 1}}\n</tool_call>'


def read(thinking: Thinking, *pieces: str, tools=()):
    content = Hermes("").parser(tools) if tools else PlainText()
    parser = ThinkTags.parser(content, thinking)
    deltas = [d for piece in pieces for d in parser.push(piece)] + parser.end()
    return [CallDelta(d.index, d.name, "id") if isinstance(d, CallDelta) else d for d in deltas]


def whole(deltas):
    answer = ParsedAnswer()
    answer.add(deltas)
    return answer.reasoning, answer.text, [(c.name, c.arguments) for c in answer.calls]


@pytest.mark.parametrize("thinking, text, reasoning, content", [
    (Thinking.allowed, "<think>\nwell,\nyes\n</think>\n\nYes.", "well,\nyes", "Yes."),
    (Thinking.allowed, "\n<think>a</think>b", "a", "b"),
    (Thinking.allowed, "<think>\n\n</think>\n\nYes.\n", "", "Yes.\n"),
    (Thinking.allowed, "Yes <think>a</think>", "", "Yes <think>a</think>"),
    (Thinking.allowed, " <thin", "", " <thin"),
    (Thinking.allowed, "", "", ""),
    (Thinking.allowed, " \n", "", " \n"),
    (Thinking.opened, "\nwell</think>Yes", "well", "Yes"),
    (Thinking.opened, "well </th", "well </th", ""),
    (Thinking.opened, "cut ", "cut", ""),
    (Thinking.opened, "a</think></think>", "a", "</think>"),
    (Thinking.opened, "a < b</think>c", "a < b", "c"),
    (Thinking.never, "<think>a</think>b", "", "<think>a</think>b"),
])
def test_reasoning_is_told_apart(thinking, text, reasoning, content):
    assert whole(read(thinking, text)) == (reasoning, content, [])
    assert whole(read(thinking, *text)) == (reasoning, content, [])


def test_reasoning_comes_as_it_is_written():
    parser = ThinkTags.parser(PlainText(), Thinking.opened)
    came = [parser.push(piece) for piece in ("a", " b", "\n", "c", " </", "x", "</think>")]
    texts = ["a", " b", None, "\nc", None, " </x", None]
    assert came == [[] if text is None else [ReasoningDelta(text)] for text in texts]


def test_calls_come_behind_the_reasoning_and_none_in_it():
    text = f"<think>\nI could write {CALL}\n</think>\n\n{CALL}"
    told = (f"I could write {CALL}", "", [("get", '{"a": 1}')])
    assert whole(read(Thinking.allowed, text, tools=TOOLS)) == told
    assert whole(read(Thinking.allowed, *text, tools=TOOLS)) == told
    assert whole(read(Thinking.allowed, CALL, tools=TOOLS)) == ("", *told[1:])


@pytest.mark.parametrize("end, thinking", [
    ("<|im_start|>assistant\n", Thinking.allowed),
    ("<|im_start|>assistant\n<think>\n", Thinking.opened),
    ("<|im_start|>assistant\n<think>\n\n</think>\n\n", Thinking.never),
])
def test_the_end_of_the_prompt_says_where_an_answer_begins(end, thinking):
    assert ThinkTags.thinking(end) is thinking


PIECES = st.lists(st.sampled_from([
    "<think>", "</think>", "<", "think>", "</", "\n", " ", "a", CALL, "<tool_call>", "</tool_call>",
]), max_size=16).map("".join)


@pytest.mark.parametrize("thinking", Thinking)
@given(text=PIECES, cuts=st.lists(st.integers(0, 120), max_size=8))
def test_any_cut_of_an_answer_gives_the_same(thinking, text, cuts):
    at = sorted({0, len(text), *(min(c, len(text)) for c in cuts)})
    once = list(merge_deltas(read(thinking, text, tools=TOOLS)))
    pieces = (text[a:b] for a, b in pairwise(at))
    assert list(merge_deltas(read(thinking, *pieces, tools=TOOLS))) == once
    assert list(merge_deltas(read(thinking, *text, tools=TOOLS))) == once
