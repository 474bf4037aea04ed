"""Tool calls over HTTP: whole, streamed, and refused fast."""

from __future__ import annotations

import json
import time

import httpx
import openai
import pytest

from tests.serve.server_process import fake

TOOL = {"type": "function", "function": {
    "name": "weather", "description": "of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 8}},
                   "required": ["city"], "additionalProperties": False}}}
NAMED = {"type": "function", "function": {"name": "weather"}}
ASKED = {"model": "tiny", "messages": [{"role": "user", "content": "Rain?"}], "tools": [TOOL],
         "max_tokens": 150}


HISTORY = [
    {"role": "user", "content": "Rain?"},
    {"role": "assistant", "content": None, "tool_calls": [{
        "id": "a", "type": "function", "function": {"name": "weather", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "a", "content": "sun"}]


@pytest.fixture(scope="module")
def server(folder):
    with fake(folder, max_model_len=1024, pages=512) as made:
        yield made
        made.at_rest()


@pytest.fixture
def client(server):
    return server.client()


@pytest.mark.parametrize("choice", ["required", NAMED])
def test_a_call_keeps_to_its_schema(client, choice):
    found = client.chat.completions.create(**ASKED, tool_choice=choice).choices[0]
    (call,) = found.message.tool_calls
    assert (call.function.name, call.type, found.message.content) == ("weather", "function", None)
    assert json.loads(call.function.arguments).keys() == {"city"}
    assert found.finish_reason == "tool_calls" and call.id


def test_a_streamed_call_begins_with_its_name(client):
    chunks = list(client.chat.completions.create(**ASKED, tool_choice="required", stream=True))
    deltas = [c.choices[0].delta for c in chunks]
    calls = [d.tool_calls[0] for d in deltas if d.tool_calls]
    assert deltas[0].role == "assistant" and not any(d.content for d in deltas)
    assert calls[0].id and calls[0].function.name == "weather" and not calls[0].function.arguments
    assert all(c.id is None and c.function.name is None for c in calls[1:])
    arguments = "".join(c.function.arguments for c in calls)
    assert json.loads(arguments).keys() == {"city"} and len(calls) > 1
    assert [c.choices[0].finish_reason for c in chunks[-2:]] == [None, "tool_calls"]


def test_a_call_that_is_cut_is_a_call(client):
    whole = client.chat.completions.create(**ASKED, tool_choice="required", seed=1)
    most = whole.usage.completion_tokens - 20
    cut = client.chat.completions.create(**ASKED | {"max_tokens": most}, tool_choice="required",
                                         seed=1).choices[0]
    assert cut.finish_reason == "length" and cut.message.content is None
    begun = cut.message.tool_calls[0].function.arguments
    assert whole.choices[0].message.tool_calls[0].function.arguments.startswith(begun)


def test_without_a_choice_text_or_calls_may_come(client):
    for choice in ("auto", "none"):
        found = client.chat.completions.create(**ASKED, tool_choice=choice, seed=1).choices[0]
        assert found.message.content or found.message.tool_calls
        assert choice == "auto" or not found.message.tool_calls


def test_a_history_with_calls_is_taken(client):
    first = client.chat.completions.create(**ASKED, tool_choice="required").choices[0].message
    messages = [*ASKED["messages"], first.model_dump(), {
        "role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "sun"}]
    assert client.chat.completions.create(**ASKED | {"messages": messages}).choices


def test_the_tokens_of_a_chat_with_tools_are_those_of_its_prompt(server, client):
    asked = {"messages": HISTORY, "tools": [TOOL]}
    found = httpx.post(f"{server.url}/tokenize", json=asked)
    answer = client.chat.completions.create(**ASKED | asked)
    assert found.json()["count"] == answer.usage.prompt_tokens


def schema(parameters):
    return [{"type": "function", "function": {"name": "f", "parameters": parameters}}]


BAD = [
    ({"tools": schema({"type": "poem"})}, "f"),
    ({"tools": schema({"type": "object", "properties": {"a": {"pattern": "("}}})}, "f"),
    ({"tools": schema({"type": "integer"})}, "object"),
    ({"tool_choice": {"type": "function", "function": {"name": "sun"}}}, "'sun'"),
    ({"tools": [{"type": "web_search"}]}, "tools.0"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools.0.function.name"),
    ({"tools": [TOOL] * 129}, "tools"),
    ({"messages": [{"role": "tool", "content": None}]}, "content"),
    ({"messages": [{"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f"}}]}]},
     "arguments"),
]


@pytest.mark.parametrize(("wrong", "shown"), BAD, ids=[shown for _, shown in BAD])
def test_what_makes_no_sense_is_refused_by_name(server, wrong, shown):
    found = httpx.post(f"{server.url}/v1/chat/completions", json=ASKED | wrong)
    assert found.status_code == 400 and shown in found.json()["error"]["message"], found.text


def test_megabytes_of_tools_are_refused_and_delay_no_other_request(server):
    text = json.dumps(ASKED | {"tools": schema({"description": "x" * (10 << 20)})}).encode()
    found = httpx.post(f"{server.url}/v1/chat/completions", content=text,
                       headers={"Content-Type": "application/json"})
    assert found.status_code == 413
    many = ASKED | {"tools": schema({"properties": {f"p{k}": {"type": "string"}
                                                    for k in range(3000)}})}
    with pytest.raises(openai.BadRequestError):
        server.client().chat.completions.create(**many)
    began = time.monotonic()
    assert httpx.get(f"{server.url}/health").status_code == 200
    assert time.monotonic() - began < 5
