"""Messages in Anthropic's format, whole and as events."""

from __future__ import annotations

import pytest

from eventtensor.llm.engine.request import FinishReason
from eventtensor.llm.serve.deltas import (
    ArgumentsDelta,
    CallDelta,
    ParsedAnswer,
    ReasoningDelta,
    TextDelta,
)
from eventtensor.llm.serve.messages.messages_writer import MessagesWriter
from eventtensor.llm.serve.response_writer import AnswerDelta, Usage, WholeAnswer

USAGE = Usage(prompt=7, cached=4, answer=9, reasoning=2)
DELTAS = [ReasoningDelta("hm"), ReasoningDelta(" .."), TextDelta("Hel"), TextDelta("lo"),
          CallDelta(0, "f", "call_1"), ArgumentsDelta(0, '{"a"'), ArgumentsDelta(0, ": 1}"),
          CallDelta(1, "g", "call_2"), ArgumentsDelta(1, "{}")]
CONTENT = [{"type": "thinking", "thinking": "hm ..", "signature": ""},
           {"type": "text", "text": "Hello"},
           {"type": "tool_use", "id": "call_1", "name": "f", "input": {"a": 1}},
           {"type": "tool_use", "id": "call_2", "name": "g", "input": {}}]


def streamed(deltas, finish=FinishReason.stop, stop=None):
    w = MessagesWriter("m")
    events = [*w.begin(USAGE)]
    for delta in deltas:
        events += w.events(AnswerDelta(0, [delta], (), None), USAGE)
    events += w.events(AnswerDelta(0, [], (), finish, stop), USAGE)
    events += w.end(USAGE)
    assert all(e.name == e.data["type"] for e in events)
    return [e.data for e in events]


def whole(deltas, finish=FinishReason.stop, stop=None):
    parsed = ParsedAnswer()
    parsed.add(deltas)
    return MessagesWriter("m").whole([WholeAnswer(parsed, [], finish, stop)], USAGE)


def test_a_message_has_blocks_of_what_was_said():
    found = whole(DELTAS)
    assert found.pop("id").startswith("msg_")
    assert found == {
        "type": "message", "role": "assistant", "model": "m", "content": CONTENT,
        "stop_reason": "tool_use", "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 9, "cache_read_input_tokens": 4,
                  "cache_creation_input_tokens": 0,
                  "output_tokens_details": {"thinking_tokens": 2}}}


def test_a_stream_begins_and_ends_each_block():
    found = streamed(DELTAS)
    assert [e["type"].removeprefix("content_block_") for e in found] == [
        "message_start", "start", "delta", "delta", "stop", "start", "delta", "delta", "stop",
        "start", "delta", "delta", "stop", "start", "delta", "stop",
        "message_delta", "message_stop"]
    assert [e["index"] for e in found if "index" in e] == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 3
    kinds = [e["content_block"]["type"] for e in found if "content_block" in e]
    assert kinds == ["thinking", "text", "tool_use", "tool_use"]
    deltas = [e["delta"] for e in found if e["type"] == "content_block_delta"]
    assert [d["type"] for d in deltas] == (
        ["thinking_delta"] * 2 + ["text_delta"] * 2 + ["input_json_delta"] * 3)
    assert deltas[4]["partial_json"] + deltas[5]["partial_json"] == '{"a": 1}'
    assert found[0]["message"]["content"] == [] and found[0]["message"]["stop_reason"] is None
    assert found[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert found[-2]["usage"]["output_tokens"] == 9


@pytest.mark.parametrize(("deltas", "finish", "stop", "reason"), [
    ([TextDelta("a")], FinishReason.stop, None, "end_turn"),
    ([TextDelta("a")], FinishReason.length, None, "max_tokens"),
    ([TextDelta("a")], FinishReason.stop, "###", "stop_sequence"),
    (DELTAS[:7], FinishReason.stop, None, "tool_use"),
    (DELTAS[:6], FinishReason.length, None, "max_tokens"),
    ([], FinishReason.stop, None, "end_turn"),
])
def test_why_a_message_ends(deltas, finish, stop, reason):
    ends = whole(deltas, finish, stop), streamed(deltas, finish, stop)[-2]["delta"]
    for end in ends:
        assert (end["stop_reason"], end["stop_sequence"]) == (reason, stop)


def test_input_that_was_cut_is_an_object_all_the_same():
    assert whole(DELTAS[:6], FinishReason.length)["content"][-1]["input"] == {}
    assert whole([CallDelta(0, "f", "c"), ArgumentsDelta(0, "[1]")])["content"][-1]["input"] == {}


def test_a_late_error_is_an_event():
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "gone"}}
    (event,) = MessagesWriter("m").failed(error)
    assert (event.name, event.data) == ("error", error)
