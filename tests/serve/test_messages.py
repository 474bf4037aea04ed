"""Anthropic's messages API of a server process, with Anthropic's client."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.serve.server_process import fake

ASKED = {"model": "tiny", "max_tokens": 8, "temperature": 0,
         "messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture(scope="module")
def server(folder):
    with fake(folder, api_key="key", max_model_len=1024, pages=256) as made:
        yield made


def post(server, path="", key="key", **more):
    found = httpx.post(f"{server.url}/v1/messages{path}", json=ASKED | more, timeout=60,
                       headers={"x-api-key": key, "anthropic-version": "2023-06-01"})
    return found.status_code, found.json()


def events(server, **more):
    found = httpx.post(f"{server.url}/v1/messages", json=ASKED | {"stream": True} | more,
                       headers={"x-api-key": "key"})
    assert found.headers["content-type"].startswith("text/event-stream")
    parts = [event.split("\n") for event in found.text.strip().split("\n\n")]
    read = [json.loads(data.removeprefix("data: ")) for _, data in parts]
    assert [name for name, _ in parts] == [f"event: {event['type']}" for event in read]
    return read


def text_of(message):
    return "".join(block["text"] for block in message["content"])


def test_a_message_is_answered(server):
    status, found = post(server)
    assert status == 200 and found["type"] == "message" and found["model"] == "tiny"
    assert found["stop_reason"] == "max_tokens" and text_of(found)
    assert found["usage"]["output_tokens"] == 8


def test_a_stream_equals_the_whole_message(server):
    _, whole = post(server)
    found = events(server)
    assert [e["type"] for e in found[:2]] == ["message_start", "content_block_start"]
    assert [e["type"] for e in found[-3:]] == ["content_block_stop", "message_delta",
                                               "message_stop"]
    text = "".join(e["delta"]["text"] for e in found if e["type"] == "content_block_delta")
    assert text == text_of(whole)
    assert found[-2]["delta"]["stop_reason"] == "max_tokens"
    start, used = found[0]["message"]["usage"], whole["usage"]
    total = ("input_tokens", "cache_read_input_tokens")
    assert sum(start[n] for n in total) == sum(used[n] for n in total)


def test_the_stop_that_ended_a_message_is_named(server):
    _, whole = post(server, max_tokens=40)
    text = text_of(whole)
    stop = text[5:7]
    _, cut = post(server, max_tokens=40, stop_sequences=["not in the text", stop])
    assert (cut["stop_reason"], cut["stop_sequence"]) == ("stop_sequence", stop)
    assert text_of(cut) == text[: text.index(stop)]
    end = events(server, max_tokens=40, stop_sequences=[stop])[-2]["delta"]
    assert end == {"stop_reason": "stop_sequence", "stop_sequence": stop}


TOOL = {"name": "look_up", "input_schema": {
    "type": "object", "properties": {"deep": {"type": "boolean"}}, "required": ["deep"],
    "additionalProperties": False}}


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "look_up"}])
def test_tools_are_used_and_their_results_sent_back(server, choice):
    asked = {"max_tokens": 120, "tools": [TOOL], "tool_choice": choice}
    _, found = post(server, **asked)
    use = found["content"][-1]
    assert found["stop_reason"] == "tool_use" and use["name"] == "look_up"
    assert type(use["input"]["deep"]) is bool
    said = events(server, **asked)
    text = "".join(e["delta"]["partial_json"] for e in said if e["type"] == "content_block_delta")
    assert json.loads(text).keys() == {"deep"}
    result = {"type": "tool_result", "tool_use_id": use["id"], "content": "42"}
    status, after = post(server, tools=[TOOL], tool_choice={"type": "none"}, messages=[
        *ASKED["messages"], {"role": "assistant", "content": found["content"]},
        {"role": "user", "content": [result]}])
    assert status == 200 and after["content"][0]["type"] == "text"


def test_tokens_are_counted_without_an_answer(server):
    body = {k: v for k, v in ASKED.items() if k not in ("max_tokens", "temperature")}
    found = httpx.post(f"{server.url}/v1/messages/count_tokens", json=body,
                       headers={"Authorization": "Bearer key"}).json()
    _, answer = post(server)
    used = answer["usage"]
    assert found == {"input_tokens": used["input_tokens"] + used["cache_read_input_tokens"]}


@pytest.mark.parametrize(("more", "status", "kind", "says"), [
    ({"key": "wrong"}, 401, "authentication_error", "key"),
    ({"model": "other"}, 404, "not_found_error", "other"),
    ({"max_tokens": 0}, 400, "invalid_request_error", "max_tokens"),
    ({"max_tokens": None}, 400, "invalid_request_error", "max_tokens"),
    ({"messages": [{"role": "user", "content": "x" * 1400}]}, 400, "invalid_request_error",
     "prompt is too long"),
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, 400,
     "invalid_request_error", "messages.0.content.0: the model reads text"),
])
def test_refusals_are_in_anthropics_form(server, more, status, kind, says):
    found, answer = post(server, **more)
    assert (found, answer["type"], answer["error"]["type"]) == (status, "error", kind)
    assert says in answer["error"]["message"]


def test_a_late_error_is_an_event_in_anthropics_form(folder):
    with fake(folder, fail_from=4, step_s=0.05) as server:
        found = events(server)
    assert found[-1]["type"] == "error" and found[-1]["error"]["type"] == "api_error"
