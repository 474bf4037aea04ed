"""Expensive requests: the server refuses each and answers others meanwhile.

A test machine may be slow, so the time limit is generous."""

from __future__ import annotations

import asyncio
import json
import threading
import time

import httpx
import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from eventtensor.llm.serve.body_reader import BodyLimits, BodyMeter, RequestBodyReader
from eventtensor.llm.serve.tokenize_bodies import TokenizeBody
from tests.serve.server_process import fake

MANY = 4 << 20
GOOD = {"model": "tiny", "prompt": "ab", "max_tokens": 5, "seed": 1, "ignore_eos": True}


@pytest.fixture(scope="module")
def server(folder):
    with fake(folder, max_body_bytes=MANY + 1000) as made:
        yield made


def many(item, field="prompt"):
    text = ",".join([item] * (MANY // (len(item) + 1)))
    return f'{{"model":"tiny","{field}":[{text}]}}'.encode()


def keys(count):
    return ",".join(f'"k{k}":0' for k in range(count))


HEAVY = {
    "nulls": ("/v1/completions", many("null")), "numbers": ("/v1/completions", many("1")),
    "halves": ("/v1/completions", many("[0.5]")), "lists": ("/v1/completions", many("[]")),
    "texts": ("/v1/completions", many('""')), "tokens": ("/detokenize", many("1", "tokens")),
    "messages": ("/v1/chat/completions", many("{}", "messages")),
    "no messages": ("/v1/chat/completions", many("0", "messages")),
    "keys": ("/v1/completions", f"{{{keys(300000)}}}".encode()),
    "some keys": ("/v1/completions", f"{{{keys(16000)}}}".encode()),
    "keys of messages": ("/v1/chat/completions",
                         f'{{"model":"tiny","messages":[{{{keys(300000)}}}]}}'.encode()),
    "deep": ("/v1/completions", b"[" * MANY),
    "a long key": ("/v1/completions", f'{{"{"k" * MANY}":0}}'.encode()),
    "a long model": ("/v1/completions", json.dumps({"model": "m" * MANY, "prompt": "a"}).encode()),
    "a long schema": ("/v1/completions", json.dumps(GOOD | {"ignore_eos": False, "n": 16,
        "response_format": {"type": "json_schema", "json_schema": {
            "name": "x", "schema": {"title": "t" * (MANY - 1000)}}}}).encode()),
    "a long stop": ("/v1/completions", json.dumps(GOOD | {"stop": "s" * MANY}).encode()),
}


def tools(count, parameters):
    """A chat with so many."""
    some = [{"type": "function", "function": {"name": f"f{k}", "parameters": parameters}}
            for k in range(count)]
    return ("/v1/chat/completions", {"model": "tiny", "tools": some,
                                     "messages": [{"role": "user", "content": "a"}]})


def nested(depth, name):
    found = {}
    for _ in range(depth):
        found = {name: found}
    return found


LONG = {
    "a long tool": tools(1, {"type": "object", "description": "d" * (MANY - 1000)}),
    "long tools": tools(128, {"type": "object", "description": "<|turn|>" * (MANY // 1200)}),
    "tools of many values": tools(1, {"type": "object", "properties": {"a": {
        "enum": list(range(60000))}}}),
    "tools of many properties": tools(8, {"type": "object", "properties": {
        f"p{k}": {"type": "string"} for k in range(300)}}),
    "deep tools": tools(128, {"type": "object", "properties": {"a": nested(100, "items")}}),
    "deep arguments": ("/v1/chat/completions", {"model": "tiny", "messages": [
        {"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [{
            "id": "a", "type": "function", "function": {
                "name": "f", "arguments": "[" * 100000 + "]" * 100000}}]}]}),
    "long options": ("/v1/chat/completions", {
        "model": "tiny", "messages": [{"role": "user", "content": "a"}],
        "chat_template_kwargs": {"a": ["x" * 1000] * 4000}}),
    "a text": ("/v1/completions", {"model": "tiny", "prompt": "a" * MANY}),
    "blanks": ("/v1/completions", {"model": "tiny", "prompt": " " * MANY}),
    "texts": ("/v1/completions", {"model": "tiny", "prompt": ["a" * (MANY // 80)] * 64}),
    "to tokens": ("/tokenize", {"prompt": "ab" * (MANY // 2)}),
    "a chat": ("/v1/chat/completions",
               {"model": "tiny", "messages": [{"role": "user", "content": "a" * MANY}]}),
    "a chat to tokens": ("/tokenize", {"messages": [{"role": "user", "content": "a b" * 1000000}]}),
}
ALL = HEAVY | {f"long: {k}": (path, json.dumps(body).encode()) for k, (path, body) in LONG.items()}


class Pulse:
    """Asks for /health all the time; `worst` is the longest wait."""

    def __init__(self, url):
        self.worst, self._url, self._stop = 0.0, url, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        with httpx.Client(timeout=60) as client:
            while not self._stop.wait(0.005):
                began = time.perf_counter()
                assert client.get(f"{self._url}/health").status_code == 200
                self.worst = max(self.worst, time.perf_counter() - began)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


@pytest.mark.parametrize("name", ALL)
def test_what_costs_much_is_refused_while_others_are_answered(server, name):
    path, body = ALL[name]
    with Pulse(server.url) as pulse:
        found = httpx.post(server.url + path, content=body, timeout=60,
                           headers={"Content-Type": "application/json"})
        time.sleep(0.05)
    assert found.status_code in (400, 404, 413), found.text[:500]
    assert len(found.content) < 4000 and found.json()["error"]["message"]
    assert pulse.worst < 1.5
    assert httpx.post(f"{server.url}/v1/completions", json=GOOD).status_code == 200


def test_a_context_of_tokens_or_text_is_answered(server):
    for prompt in ([5] * 250, "a" * 250, ["a\\\"," * 60] * 4, [[7] * 250] * 4):
        body = GOOD | {"prompt": prompt}
        assert httpx.post(f"{server.url}/v1/completions", json=body).status_code == 200
    text = "ü" * 120
    found = httpx.post(f"{server.url}/tokenize", json={"prompt": text}).json()
    assert found["count"] == 240
    back = httpx.post(f"{server.url}/detokenize", json={"tokens": found["tokens"]}).json()
    assert back == {"prompt": text}


# ---- the body meter ------------------------------------------------------------------------------


def count(text, cut, **limits):
    meter = BodyMeter(BodyLimits(**limits))
    for at in range(0, len(text), cut):
        meter.add(text[at : at + cut])
    return meter


TEXT = json.dumps({"a,[{:": 'b\\",[[["\\\\', "c": ["\\", '"', ",", [1, 2], {}, "ü,"]}).encode()


@pytest.mark.parametrize("cut", [1, 2, 3, 7, 1000])
def test_only_what_is_outside_of_texts_counts(cut):
    # 2 fields, 2 objects and 2 lists; 5 + 1 + 1 commas, and one value that none precedes.
    count(TEXT, cut, max_containers=6, max_values=12)
    for limits in ({"max_containers": 5}, {"max_values": 11}, {"max_bytes": len(TEXT) - 1}):
        with pytest.raises(HTTPException, match="more than"):
            count(TEXT, cut, **limits)


def test_large_bodies_share_a_limit_and_small_ones_do_not(folder):
    async def read():
        def request(size):
            body = json.dumps({"prompt": "a" * size}).encode()

            async def receive():
                return {"type": "http.request", "body": body, "more_body": False}

            head = [(b"content-type", b"application/json")]
            return Request({"type": "http", "method": "POST", "headers": head}, receive)

        bodies = RequestBodyReader(BodyLimits(max_total_bytes=200_000))
        async with bodies.read(request(200_000), TokenizeBody):
            async with bodies.read(request(60_000), TokenizeBody):
                pass
            with pytest.raises(HTTPException, match="too many large bodies"):
                async with bodies.read(request(200_000), TokenizeBody):
                    pass
        async with bodies.read(request(200_000), TokenizeBody) as body:
            assert len(body.prompt) == 200_000

    asyncio.run(read())


def test_a_large_answer_does_not_delay_other_requests(server):
    body = GOOD | {"max_tokens": 250, "logprobs": 20, "n": 8}
    with Pulse(server.url) as pulse:
        found = httpx.post(f"{server.url}/v1/completions", json=body, timeout=120)
    assert found.status_code == 200 and pulse.worst < 1.5
    first, *_, last = found.json()["choices"]
    assert len(first["logprobs"]["tokens"]) == len(last["logprobs"]["top_logprobs"]) == 250


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities_of_long_prompts_do_not_delay_other_requests(folder, stream):
    """Of 4800 tokens, with 20 others each."""
    body = GOOD | {"prompt": [[5] * 240] * 20, "max_tokens": 0, "logprobs": 20, "echo": True}
    with fake(folder, max_waiting=20) as server, Pulse(server.url) as pulse:
        found = httpx.post(f"{server.url}/v1/completions", json=body | {"stream": stream},
                           timeout=200)
    assert found.status_code == 200 and pulse.worst < 1.5, found.text[:500]
    events = [found.json()] if not stream else [
        json.loads(x[6:]) for x in found.text.splitlines() if x.startswith("data: {")]
    lists = [c["logprobs"]["top_logprobs"] for e in events for c in e["choices"] if c["logprobs"]]
    assert sum(map(len, lists)) == 20 * 240
    assert max(map(len, lists)) == (64 if stream else 240)
