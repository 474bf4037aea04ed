"""Errors in the formats of OpenAI's and Anthropic's APIs."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import httpx
import openai
import pytest
from starlette.requests import Request

from eventtensor.errors import EngineStopped, PromptTooLong, QueueFull
from eventtensor.llm.engine.request import Output
from eventtensor.llm.serve.error_formats import ErrorInfo, error_format
from eventtensor.llm.serve.error_responses import (
    HANDLERS,
    RefusedRequest,
    error_info,
    handle_user_error,
)
from eventtensor.llm.serve.response_writer import Event, ResponseWriter
from eventtensor.llm.serve.streaming import CompletionStream, EventStreamResponse
from tests.serve.server_process import fake

ASKED = {"model": "tiny", "prompt": "ab", "max_tokens": 3}
BOTH = ("Input tokens exceed the configured limit of 64 tokens.",
        "This model's maximum context length is 64 tokens")


@pytest.fixture(scope="module")
def server(folder):
    with fake(folder, api_key="key", max_model_len=64, max_num_seqs=2, max_waiting=2) as made:
        yield made


def post(server, body, path="/v1/completions", key="key"):
    found = httpx.post(server.url + path, json=body, timeout=60,
                       headers={"Authorization": f"Bearer {key}"})
    return found.status_code, found.json()["error"]


# ---- OpenAI's codes and types --------------------------------------------------------------------


@pytest.mark.parametrize("prompt", ["x" * 70, "x" * 9000, [5] * 64, "xyz" * 100000])
def test_a_prompt_that_is_too_long_is_known_by_its_code_and_by_both_sentences(server, prompt):
    status, error = post(server, ASKED | {"prompt": prompt})
    assert (status, error["code"]) == (400, "context_length_exceeded")
    assert error["message"].startswith("ET517: ") and all(s in error["message"] for s in BOTH)
    chat = [{"role": "user", "content": "x" * 80}]
    with pytest.raises(openai.BadRequestError) as found:
        server.client("key").chat.completions.create(model="tiny", messages=chat)
    assert found.value.code == "context_length_exceeded"
    assert all(sentence in str(found.value) for sentence in BOTH)


def test_an_answer_that_is_too_long_is_not_said_to_be_the_prompts_fault(server):
    status, error = post(server, ASKED | {"max_tokens": 63})
    assert (status, error["code"]) == (400, "context_length_exceeded")
    assert BOTH[1] in error["message"] and BOTH[0] not in error["message"]


@pytest.mark.parametrize(("body", "param", "code"), [
    ({"temprature": 1}, "temprature", "unknown_parameter"),
    ({"temperature": "hot"}, "temperature", "invalid_type"),
    ({"n": 0}, "n", "invalid_value"), ({"prompt": ""}, None, None),
    ({"bad_words": ["x"]}, "bad_words", "unsupported_parameter"),
    ({"use_beam_search": True}, "use_beam_search", "unsupported_value"),
])
def test_a_wrong_field_has_its_name_and_a_code(server, body, param, code):
    status, error = post(server, ASKED | body)
    assert status == 400 and error["type"] == "invalid_request_error"
    assert (error["param"], error["code"]) == (param, code)


def test_a_field_that_is_missing_has_a_code(server):
    _, error = post(server, {"model": "tiny"})
    assert (error["param"], error["code"]) == ("prompt", "missing_required_parameter")


def test_a_model_that_is_not_here_has_its_code(server):
    status, error = post(server, ASKED | {"model": "gpt"})
    assert (status, error["param"], error["code"]) == (404, "model", "model_not_found")
    with pytest.raises(openai.NotFoundError) as found:
        server.client("key").models.retrieve("a/b")
    assert found.value.code == "model_not_found"


def test_a_wrong_key_has_its_code(server):
    status, error = post(server, ASKED, key="other")
    assert (status, error["code"]) == (401, "invalid_api_key")
    with pytest.raises(openai.AuthenticationError) as found:
        server.client("other").models.list()
    assert found.value.code == "invalid_api_key"


@pytest.mark.parametrize(("error", "status", "kind", "code"), [
    (QueueFull("4 requests"), 429, "requests", "rate_limit_exceeded"),
    (EngineStopped("the server ends"), 503, "server_error", None),
    (PromptTooLong(8, "9 tokens"), 400, "invalid_request_error", "context_length_exceeded"),
])
def test_errors_of_the_engine_have_types_and_codes(error, status, kind, code):
    found = answer(error, "/v1/completions")
    assert found.status_code == status
    told = json.loads(found.body)["error"]
    assert (told["type"], told["code"]) == (kind, code) and error.code in told["message"]


def test_no_code_is_a_number(server):
    for path in ("/v1/nothing", "/v1/completions"):  # no such path, no such method
        found = httpx.get(server.url + path, headers={"Authorization": "Bearer key"})
        assert found.json()["error"]["code"] is None
    sent = httpx.post(f"{server.url}/v1/completions", content=b"{",
                      headers={"Authorization": "Bearer key", "Content-Type": "application/json"})
    assert sent.json()["error"]["code"] is None


# ---- forms of other APIs -------------------------------------------------------------------------


def answer(error, path):
    request = Request({"type": "http", "path": path, "headers": [], "query_string": b""})
    handlers = (HANDLERS[kind] for kind in type(error).__mro__ if kind in HANDLERS)
    handler = next(handlers, handle_user_error)
    return asyncio.run(handler(request, error))


@pytest.mark.parametrize(("error", "status", "kind"), [
    (QueueFull("4 requests"), 429, "rate_limit_error"),
    (EngineStopped("the server ends"), 503, "overloaded_error"),
    (PromptTooLong(8, "9 tokens"), 400, "invalid_request_error"),
    (RefusedRequest(404, "no such model", "model_not_found"), 404, "not_found_error"),
    (ValueError("a bug"), 500, "api_error"),
])
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_errors_under_messages_have_the_form_of_anthropic(error, status, kind, path):
    found = answer(error, path)
    assert found.status_code == status
    told = json.loads(found.body)
    assert told["type"] == "error" and told["error"]["type"] == kind
    assert set(told["error"]) == {"type", "message"}


def test_anthropics_clients_know_a_long_prompt_by_the_begin_of_the_message():
    told = error_format("/v1/messages")(error_info(PromptTooLong(8, "9 tokens")))
    assert told["error"]["message"].startswith("prompt is too long: ET517")


def test_a_path_that_only_begins_alike_has_the_usual_form():
    assert "type" not in error_format("/v1/messages_of_others")(ErrorInfo(400, "x"))


class OneText:
    """A request group without an engine."""

    requests = (SimpleNamespace(reused=0),)

    async def __aiter__(self):
        yield 0, Output("text")

    def cancel(self):
        pass


class Broken(ResponseWriter):
    """Fails in the middle of an answer."""

    def whole(self, answers, usage):
        raise TypeError

    def begin(self, usage):
        yield Event({"first": 1})

    def events(self, new, usage):
        raise TypeError("a bug")


@pytest.mark.parametrize(("path", "kind"), [
    ("/v1/completions", "server_error"), ("/v1/messages", "api_error")])
def test_a_bug_in_the_middle_of_a_stream_is_an_event_too(path, kind):
    sent = []

    async def receive():
        await asyncio.sleep(60)

    async def send(message):
        sent.append(message)

    stream = EventStreamResponse(CompletionStream(OneText(), Broken(), 1))
    with pytest.raises(TypeError):  # for the log
        asyncio.run(stream({"type": "http", "path": path}, receive, send))
    first, event, last = (message["body"] for message in sent[1:])
    assert first.startswith(b'data: {"first"') and last == b"data: [DONE]\n\n"
    told = json.loads(event.removeprefix(b"data: "))["error"]
    assert told["type"] == kind and "TypeError" in told["message"]
    assert not sent[-1].get("more_body")


# ---- a full queue --------------------------------------------------------------------------------


def test_a_client_with_its_default_retries_loses_nothing_to_a_full_queue(folder):
    """There is room for 16 of 40, and no request has ended when the others are refused first."""
    with fake(folder, max_num_seqs=4, max_waiting=12, step_s=0.1) as server:
        def ask(_):
            client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=60)
            return client.completions.create(model="tiny", prompt="ab", max_tokens=8)

        with ThreadPoolExecutor(40) as pool:
            assert len(list(pool.map(ask, range(40)))) == 40


def test_a_full_queue_says_when_to_come_again():
    for path in ("/v1/completions", "/v1/messages"):
        found = answer(QueueFull("320 requests", retry_s=17), path)
        assert found.headers["retry-after"] == "17"
        assert "retry-after" not in answer(QueueFull("320 requests"), path).headers
