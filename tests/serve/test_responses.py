"""The responses API of a server process, with OpenAI's client."""

from __future__ import annotations

import json

import httpx
import openai
import pytest
from openai.types.responses import Response
from pydantic import BaseModel

from tests.serve.server_process import fake


class Point(BaseModel):
    x: bool
    y: bool


@pytest.fixture(scope="module")
def server(folder):
    with fake(folder, api_key="key", response_store=20, max_model_len=1024, pages=256) as made:
        yield made


@pytest.fixture(scope="module")
def client(server):
    return server.client("key")


def create(client, input="hello", **more):
    return client.responses.create(**{"model": "tiny", "max_output_tokens": 8,
                                      "extra_body": {"seed": 3}, "input": input, **more})


def test_a_response_is_answered_and_incomplete_when_it_is_cut(client):
    found = create(client, temperature=0)
    assert (found.object, found.status, found.model) == ("response", "incomplete", "tiny")
    assert found.incomplete_details.reason == "max_output_tokens"
    assert found.output_text and found.usage.output_tokens == 8
    assert found.usage.total_tokens == found.usage.input_tokens + 8
    assert found.max_output_tokens == 8 and found.store is True


def test_a_stream_equals_the_whole_response(client):
    whole = create(client, temperature=0)
    events = [*create(client, temperature=0, stream=True)]
    assert [e.sequence_number for e in events] == [*range(len(events))]
    assert [e.type for e in events[:4]] == [
        "response.created", "response.in_progress", "response.output_item.added",
        "response.content_part.added"]
    assert events[-1].type == "response.incomplete"
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert text == whole.output_text == events[-1].response.output_text
    assert events[-1].response.usage.output_tokens == 8


def test_a_stream_names_its_events_and_has_no_done(server):
    body = {"model": "tiny", "input": "hello", "max_output_tokens": 3, "stream": True}
    found = httpx.post(f"{server.url}/v1/responses", json=body,
                       headers={"Authorization": "Bearer key"})
    assert found.headers["content-type"].startswith("text/event-stream")
    for event in found.text.strip().split("\n\n"):
        name, data = event.split("\n")
        assert name == f"event: {json.loads(data.removeprefix('data: '))['type']}"


def test_the_clients_own_stream_gives_the_last_response(client):
    with client.responses.stream(model="tiny", input="hello", max_output_tokens=8,
                                 temperature=0) as stream:
        kinds = {event.type for event in stream}
        assert "response.output_text.delta" in kinds
        with pytest.raises(RuntimeError, match="completed"):
            stream.get_final_response()  # it knows no other end


def test_an_answer_follows_its_schema_and_is_parsed(client):
    found = client.responses.parse(model="tiny", input="hello", text_format=Point)
    assert isinstance(found.output_parsed, Point) and found.status == "completed"
    assert found.text.format.name == "Point" and found.completed_at is not None


def test_a_response_goes_on_with_one_before(client):
    first = create(client, "one", instructions="be short", temperature=0)
    second = create(client, "two", previous_response_id=first.id, temperature=0)
    assert second.previous_response_id == first.id
    said = [{"role": "user", "content": "one"}, *first.to_dict()["output"],
            {"role": "user", "content": "two"}]
    by_hand = create(client, said, temperature=0, store=False)
    assert by_hand.usage.input_tokens == second.usage.input_tokens > first.usage.input_tokens
    assert by_hand.output_text == second.output_text and by_hand.store is False
    third = create(client, [{"id": first.output[0].id, "type": "item_reference"},
                            {"role": "user", "content": "three"}])
    assert third.usage.input_tokens > create(client, "three").usage.input_tokens


def test_a_stored_response_is_given_back_listed_and_deleted(client):
    made = create(client, [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}],
                  metadata={"a": "b"})
    assert client.responses.retrieve(made.id) == made
    items = client.responses.input_items.list(made.id, limit=1, order="asc")
    assert [item.content[0].text for item in items] == ["one", "two"]  # page by page
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError, match="not found"):
        client.responses.retrieve(made.id)
    with pytest.raises(openai.BadRequestError) as gone:
        create(client, previous_response_id=made.id)
    assert gone.value.code == "previous_response_not_found"


def test_a_streamed_response_is_stored_too(client):
    last = [*create(client, stream=True)][-1].response
    assert client.responses.retrieve(last.id).output_text == last.output_text


def test_nothing_is_stored_when_that_is_asked_for(client):
    made = create(client, store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)


def test_a_store_has_an_end(client):
    first = create(client)
    for _ in range(20):
        create(client, max_output_tokens=1)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)


TOOL = {"type": "function", "name": "look_up", "strict": True, "parameters": {
    "type": "object", "properties": {"deep": {"type": "boolean"}}, "required": ["deep"],
    "additionalProperties": False}}


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "look_up"}])
def test_functions_are_called_and_their_outputs_sent_back(client, choice):
    asked = {"tools": [TOOL], "tool_choice": choice, "max_output_tokens": 120}
    found = create(client, **asked)
    (call,) = found.output
    assert (found.status, call.type, call.name) == ("completed", "function_call", "look_up")
    assert type(json.loads(call.arguments)["deep"]) is bool
    events = [*create(client, **asked, stream=True)]
    pieces = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
    assert json.loads("".join(pieces)).keys() == {"deep"}
    done = next(e for e in events if e.type == "response.function_call_arguments.done")
    assert done.arguments == "".join(pieces) == events[-1].response.output[0].arguments
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "42"}
    after = create(client, [output], previous_response_id=found.id, tools=[TOOL],
                   tool_choice="none")
    by_hand = create(client, [{"role": "user", "content": "hello"}, call.to_dict(), output],
                     tools=[TOOL], tool_choice="none")
    assert after.output[0].type == "message"
    assert after.usage.input_tokens == by_hand.usage.input_tokens


def test_log_probabilities_come_if_they_are_asked_for(client):
    found = create(client, top_logprobs=2, include=["message.output_text.logprobs"])
    logprobs = found.output[0].content[0].logprobs
    assert len(logprobs) == 8 and all(len(p.top_logprobs) == 2 for p in logprobs)
    many = create(client, top_logprobs=1, max_output_tokens=100)  # written beside the event loop
    assert client.responses.retrieve(many.id) == many


def test_tokens_are_counted_without_an_answer(client):
    count = client.responses.input_tokens.count(model="tiny", input="hello")
    assert count.input_tokens == create(client).usage.input_tokens


def test_refusals_are_those_of_other_paths(server, client):
    with pytest.raises(openai.AuthenticationError):
        create(server.client("wrong"))
    with pytest.raises(openai.NotFoundError):
        create(client, model="other")
    image = [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]
    for wrong, why in (({"input": image}, "images, files and audio are refused"),
                       ({"input": "x" * 1400}, "maximum context length"),
                       ({"background": True}, "only False"),
                       ({"max_output_tokens": 0}, "max_tokens")):
        with pytest.raises(openai.BadRequestError, match=why):
            create(client, **wrong)
    with pytest.raises(openai.BadRequestError) as refused:
        create(client, image)
    assert refused.value.param == "input.0.content.0"
    for path in ("/v1/responses/nothing", "/v1/responses/nothing/input_items"):
        assert httpx.get(server.url + path).status_code == 401


def test_a_server_without_a_store_says_what_it_does_not_store(folder):
    with fake(folder, response_store=0) as server:
        client = server.client()
        made = create(client)
        assert made.store is False
        with pytest.raises(openai.BadRequestError, match="not found"):
            create(client, previous_response_id=made.id)


def test_a_late_error_fails_the_response(folder):
    with fake(folder, fail_from=4, step_s=0.05) as server:
        events = [*create(server.client(), stream=True)]
    assert [e.type for e in events[-2:]] == ["error", "response.failed"]
    assert events[-1].response.error.code == "server_error"
    assert isinstance(events[-1].response, Response)
