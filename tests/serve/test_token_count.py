"""Reasoning tokens are estimated by the share of reasoning in the text."""

from __future__ import annotations

from eventtensor.llm.serve.deltas import ArgumentsDelta, CallDelta, ReasoningDelta, TextDelta
from eventtensor.llm.serve.openai_writer import usage_json
from eventtensor.llm.serve.response_writer import Usage
from eventtensor.llm.serve.token_count import TokenCount


def test_tokens_of_reasoning_are_counted_apart():
    count = TokenCount()
    count.add(0, 3, [ReasoningDelta("hm, ")])
    count.add(0, 1, [])  # held back: reasoning as well
    count.add(0, 4, [ReasoningDelta("ab"), TextDelta("cd")])  # half of them
    count.add(0, 2, [TextDelta("!")])
    count.add(0, 5, [CallDelta(0, "f"), ArgumentsDelta(0, "{}")])
    assert (count.total, count.reasoning) == (15, 6)


def test_answers_do_not_mix():
    count = TokenCount()
    count.add(0, 2, [ReasoningDelta("hm")])
    count.add(1, 7, [])
    assert (count.total, count.reasoning) == (9, 2)


def test_usage_tells_reasoning_where_there_was_some():
    assert "completion_tokens_details" not in usage_json(Usage(1, 0, 2))
    details = usage_json(Usage(1, 0, 9, reasoning=4))["completion_tokens_details"]
    assert details == {"reasoning_tokens": 4}
