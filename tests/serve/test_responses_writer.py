"""Every event and every response has the types of OpenAI's SDK."""

from __future__ import annotations

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from eventtensor.llm.engine.request import FinishReason, Logprobs, ScoredToken
from eventtensor.llm.serve.deltas import (
    ArgumentsDelta,
    CallDelta,
    ParsedAnswer,
    ReasoningDelta,
    TextDelta,
)
from eventtensor.llm.serve.response_writer import AnswerDelta, Usage, WholeAnswer
from eventtensor.llm.serve.responses.responses_body import ResponsesBody
from eventtensor.llm.serve.responses.responses_writer import ResponsesWriter
from eventtensor.llm.serve.token_texts import TokenTexts

EVENT = TypeAdapter(ResponseStreamEvent)
USAGE = Usage(prompt=7, cached=4, answer=9, reasoning=2)
TOOL = {"type": "function", "name": "f", "description": "d", "strict": True,
        "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}
DELTAS = [ReasoningDelta("hm"), ReasoningDelta(" .."), TextDelta("Hel"), TextDelta("lo"),
          CallDelta(0, "f", "call_1"), ArgumentsDelta(0, '{"a"'), ArgumentsDelta(0, ": 1}"),
          CallDelta(1, "g", "call_2"), ArgumentsDelta(1, "{}")]


def checked(kind, data):
    """What OpenAI sends beyond the types of its SDK is listed here."""
    def extras(value, at):
        if isinstance(value, BaseModel):
            for name in value.model_extra or {}:
                assert name in {"store", "name", "bytes"}, f"{at}.{name} is not in the SDK"
            for name in type(value).model_fields:
                extras(getattr(value, name), f"{at}.{name}")
        elif isinstance(value, list):
            for k, one in enumerate(value):
                extras(one, f"{at}.{k}")

    found = (EVENT if kind is None else TypeAdapter(kind)).validate_python(data, strict=False)
    extras(found, data.get("type", "response"))
    return found


def writer(callback=None, **asked):
    body = ResponsesBody.model_validate({"model": "m", "input": "hi", **asked})
    more = {} if callback is None else {"store": callback}
    return ResponsesWriter("m", TokenTexts(None), body.echo(body.wants_store), **more)


def streamed(w, deltas, finish=FinishReason.stop, tokens=()):
    """One delta at a time."""
    new = [AnswerDelta(0, [d], tokens, None) for d in deltas]
    new.append(AnswerDelta(0, [], (), finish))
    events = [*w.begin(USAGE)]
    for one in new:
        events += w.events(one, USAGE)
    events += w.end(USAGE)
    for k, event in enumerate(events):
        assert event.name == event.data["type"] and event.data["sequence_number"] == k
        checked(None, event.data)
    return [e.data for e in events]


def whole(w, deltas, finish=FinishReason.stop):
    parsed = ParsedAnswer()
    parsed.add(deltas)
    found = w.whole([WholeAnswer(parsed, [], finish)], USAGE)
    checked(Response, found)
    return found


def without_ids(items):
    return [{k: v for k, v in item.items() if k != "id"} for item in items]


def test_a_stream_has_all_events_of_its_items_in_order():
    found = streamed(writer(tools=[TOOL]), DELTAS)
    assert [e["type"].removeprefix("response.") for e in found] == [
        "created", "in_progress",
        "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.delta",
        "reasoning_text.done", "content_part.done", "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.delta",
        "function_call_arguments.done", "output_item.done",
        "output_item.added", "function_call_arguments.delta",
        "function_call_arguments.done", "output_item.done",
        "completed"]
    assert [e["output_index"] for e in found if "output_index" in e] == (
        [0] * 7 + [1] * 7 + [2] * 5 + [3] * 4)


def test_a_stream_adds_up_to_the_whole_response():
    last = streamed(writer(tools=[TOOL]), DELTAS)[-1]["response"]
    found = whole(writer(tools=[TOOL]), DELTAS)
    assert without_ids(found["output"]) == without_ids(last["output"])
    assert found.keys() == last.keys()
    reasoning, message, first, second = found["output"]
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "hm .."}]
    assert message["content"][0]["text"] == "Hello"
    assert (first["name"], first["call_id"], first["arguments"]) == ("f", "call_1", '{"a": 1}')
    assert (second["name"], second["arguments"], second["status"]) == ("g", "{}", "completed")
    assert found["usage"] == {
        "input_tokens": 7, "output_tokens": 9, "total_tokens": 16,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 2}}


@pytest.mark.parametrize("deltas", [[], [TextDelta("cut")], DELTAS[:6]])
def test_an_answer_that_was_cut_is_incomplete(deltas):
    kept = []
    events = streamed(writer(kept.append), deltas, FinishReason.length)
    assert events[-1]["type"] == "response.incomplete"
    assert events[-2]["item"]["status"] == "incomplete"
    for found in (events[-1]["response"], whole(writer(), deltas, FinishReason.length), *kept):
        assert found["status"] == "incomplete" and found["completed_at"] is None
        assert found["incomplete_details"] == {"reason": "max_output_tokens"}
        assert [i["status"] for i in found["output"]][-1] == "incomplete"
    assert len(kept) == 1


def test_an_answer_without_a_word_is_an_empty_message():
    found = whole(writer(), [])
    assert [i["type"] for i in found["output"]] == ["message"]
    assert Response.model_validate(found).output_text == ""


def test_an_error_in_a_stream_fails_the_response():
    w = writer()
    events = [*w.begin(USAGE), *w.events(AnswerDelta(0, [TextDelta("a")], (), None), USAGE)]
    error = {"error": {"message": "gone", "type": "server_error", "param": None, "code": None}}
    failed = [*w.failed(error)]
    for k, event in enumerate([*events, *failed]):
        checked(None, event.data)
        assert event.data["sequence_number"] == k
    assert [e.name for e in failed] == ["error", "response.failed"]
    assert failed[1].data["response"]["error"] == {"code": "server_error", "message": "gone"}
    assert failed[1].data["response"]["status"] == "failed"


def test_log_probabilities_come_with_their_text_or_the_next():
    w = writer(top_logprobs=1)
    tokens = [ScoredToken(k, Logprobs(-1.0 * k, ((k, -1.0 * k),))) for k in range(3)]
    events = []
    for new in (AnswerDelta(0, [], tokens[:1], None),
                AnswerDelta(0, [TextDelta("ab")], tokens[1:2], None),
                AnswerDelta(0, [], tokens[2:], FinishReason.stop)):
        events += [e.data for e in w.events(new, USAGE)]
    events += [e.data for e in w.end(USAGE)]
    for event in events:
        checked(None, event)
    deltas = [e for e in events if e["type"] == "response.output_text.delta"]
    assert [[p["logprob"] for p in e["logprobs"]] for e in deltas] == [[0.0, -1.0], [-2.0]]
    assert [e["delta"] for e in deltas] == ["ab", ""]
    part = events[-1]["response"]["output"][0]["content"][0]
    assert [p["logprob"] for p in part["logprobs"]] == [0.0, -1.0, -2.0]


def test_a_response_says_again_what_was_asked():
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    found = whole(writer(
        instructions="be short", temperature=0.5, top_p=0.9, max_output_tokens=20, tools=[TOOL],
        tool_choice={"type": "function", "name": "f"}, parallel_tool_calls=False,
        metadata={"a": "b"}, user="me", prompt_cache_key="k", store=False,
        text={"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True},
              "verbosity": "low"},
        reasoning={"effort": "low"}), [TextDelta("{}")])
    response = Response.model_validate(found)
    assert (response.instructions, response.temperature, response.top_p) == ("be short", 0.5, 0.9)
    assert response.tools[0].name == "f" and response.tool_choice.name == "f"
    assert not response.parallel_tool_calls and response.max_output_tokens == 20
    assert response.text.format.schema_ == schema and response.text.verbosity == "low"
    assert response.reasoning.effort == "low" and response.metadata == {"a": "b"}
    assert (found["store"], found["user"], found["prompt_cache_key"]) == (False, "me", "k")
