"""API keys, hosts and origins, model names, and grammars that cannot be compiled or satisfied."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
import time
from types import SimpleNamespace
from urllib.parse import urlsplit

import httpx
import openai
import pytest
from starlette.requests import Request

from eventtensor.errors import BadGrammar
from eventtensor.llm.engine.grammar import Grammar
from eventtensor.llm.engine.sampling_params import SamplingParams
from eventtensor.llm.serve.generation_service import GenerationService
from eventtensor.llm.serve.output_queue import ClientDisconnected
from tests.serve.server_process import fake, running

ASKED = {"model": "tiny", "prompt": "ab", "max_tokens": 3}
SITE = "https://example.org"


@pytest.fixture(scope="module")
def server(folder):
    with fake(folder, api_key="clé", hosts=["proxy.example"]) as made:
        yield made


@pytest.fixture(scope="module")
def open_to_pages(folder):
    with fake(folder, origins=[SITE, "https://other.example"], api_key="key") as made:
        yield made


# ---- keys ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "status"), [
    ("Bearer clé".encode(), 200), ("bearer clé".encode(), 200), ("BEARER  clé".encode(), 200),
    ("Bearer clé".encode("latin-1"), 200), (b"Bearer cle", 401), (b"Bearer", 401), (b"", 401),
    ("Basic clé".encode(), 401), ("clé".encode(), 401), ("Bearer clé2".encode(), 401),
])
def test_the_key_is_compared_by_its_bytes(server, key, status):
    found = httpx.get(f"{server.url}/v1/models", headers=[(b"Authorization", key)])
    assert found.status_code == status


@pytest.mark.parametrize(("headers", "status"), [
    ({"x-api-key": "clé".encode()}, 200), ({"X-Api-Key": "clé".encode("latin-1")}, 200),
    ({"api-key": "clé".encode()}, 200), ({"x-api-key": b"cle"}, 401), ({"api-key": b""}, 401),
    ({"authorization": b"Bearer placeholder", "x-api-key": "clé".encode()}, 200),
    ({"x-other-key": "clé".encode()}, 401),
])
def test_clients_of_other_apis_send_the_key_in_headers_of_their_own(server, headers, status):
    assert httpx.get(f"{server.url}/v1/models", headers=headers).status_code == status


# ---- types, hosts and origins --------------------------------------------------------------------

KEY = {"Authorization": "Bearer clé".encode()}


@pytest.mark.parametrize(("kind", "status"), [
    ("application/json", 200), ("Application/JSON; charset=utf-8", 200), ("text/plain", 415),
    ("", 415), ("application/x-www-form-urlencoded", 415), ("multipart/form-data", 415),
])
def test_only_json_is_read(server, kind, status):
    found = httpx.post(f"{server.url}/v1/completions", content=json.dumps(ASKED),
                       headers=KEY | {"Content-Type": kind})
    assert found.status_code == status, found.text


@pytest.mark.parametrize(("host", "status"), [
    ("localhost", 200), ("LOCALHOST:81", 200), ("127.0.0.1:9", 200), ("127.8.8.8", 200),
    ("[::1]:80", 200), ("proxy.example", 200), ("evil.example", 421), ("evil.example:80", 421),
    ("localhost.evil.example", 421), ("192.168.0.1", 421), ("", 421), ("127.0.0.1.evil", 421),
])
def test_a_server_at_loopback_is_asked_under_its_own_name(server, host, status):
    found = httpx.get(f"{server.url}/health", headers={"Host": host})
    assert found.status_code == status
    if status != 200:
        assert found.json()["error"]["message"]


def test_elsewhere_the_name_is_free(folder):
    with fake(folder, hosts=None) as server:
        found = httpx.get(f"{server.url}/health", headers={"Host": "any.example"})
        assert found.status_code == 200


def preflight(server, origin):
    return httpx.options(f"{server.url}/v1/chat/completions", headers={
        "Origin": origin, "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os"})


def test_pages_of_named_origins_may_ask_and_read(open_to_pages):
    asked = preflight(open_to_pages, SITE)
    assert asked.status_code == 200
    assert asked.headers["access-control-allow-origin"] == SITE
    assert "x-stainless-os" in asked.headers["access-control-allow-headers"]
    assert "POST" in asked.headers["access-control-allow-methods"]
    key = {"Origin": SITE, "Authorization": "Bearer key"}
    for body, headers, status in ((ASKED, key, 200), (ASKED | {"stream": True}, key, 200),
                                  (ASKED | {"n": 0}, key, 400), (ASKED, {"Origin": SITE}, 401),
                                  (ASKED, key | {"Host": "evil.example"}, 421)):
        found = httpx.post(f"{open_to_pages.url}/v1/completions", json=body, headers=headers)
        assert found.status_code == status
        assert found.headers["access-control-allow-origin"] == SITE
        assert found.headers["vary"] == "Origin"


def test_pages_of_other_origins_get_no_leave(server, open_to_pages):
    for one in (server, open_to_pages):
        asked = preflight(one, "https://evil.example")
        assert asked.status_code >= 400 and "access-control-allow-origin" not in asked.headers
        found = httpx.get(f"{one.url}/health", headers={"Origin": "https://evil.example"})
        assert "access-control-allow-origin" not in found.headers


# ---- models --------------------------------------------------------------------------------------


def test_a_model_is_found_by_its_name(open_to_pages):
    client = open_to_pages.client("key")
    assert client.models.retrieve("tiny").id == "tiny"
    for name in ("other", "a/b"):
        with pytest.raises(openai.NotFoundError, match="is not here"):
            client.models.retrieve(name)


# ---- grammars ------------------------------------------------------------------------------------


def schema(value):
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": value}}


@pytest.mark.parametrize("asked", [
    schema({"$ref": "#"}), schema({"enum": []}), schema({"type": "string", "pattern": "["}),
    {"type": "regex", "pattern": "a{1000000}b{1000000}c{1000000}"},
    schema({"type": "integer", "multipleOf": 9999991}),
    schema({"allOf": [{"type": "integer", "multipleOf": 9973}, {"multipleOf": 0.9967}]}),
    schema({"anyOf": [{"type": "integer", "multipleOf": n} for n in range(9000, 9020)]}),
    {"type": "regex", "pattern": "(?=a)"}, {"type": "regex", "pattern": "(((" * 5000},
], ids=lambda asked: str(asked)[:60])
@pytest.mark.parametrize("stream", [False, True])
def test_a_grammar_that_leads_nowhere_is_the_clients_fault(open_to_pages, asked, stream):
    found = httpx.post(
        f"{open_to_pages.url}/v1/completions", timeout=60, headers={"Authorization": "Bearer key"},
        json=ASKED | {"response_format": asked, "stream": stream})
    assert found.status_code == 400, found.text
    message = found.json()["error"]["message"]
    assert "ET506" in message and "\n" not in message and len(message) < 400


def test_divisors_with_few_remainders_are_allowed(open_to_pages):
    steps = {"properties": {str(n): {"multipleOf": n} for n in (0.01, 1e6, 15, 3600, 86400)}}
    asked = schema({"type": "integer", "multipleOf": 5, "$defs": {"a": [steps]}})
    found = httpx.post(
        f"{open_to_pages.url}/v1/completions", timeout=60, headers={"Authorization": "Bearer key"},
        json=ASKED | {"response_format": asked})
    assert found.status_code == 200, found.text


def test_few_grammars_compile_at_a_time_and_none_for_a_client_that_has_left():
    at_work, most, asked = 0, 0, []
    lock = threading.Lock()

    def of(params):
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
            asked.append(params.regex)
        time.sleep(0.05)
        with lock:
            at_work -= 1

    async def ask():
        grammars = SimpleNamespace(compile=of)
        llm = SimpleNamespace(max_model_len=64, engine=SimpleNamespace(grammars=grammars))
        generation = GenerationService(llm, None)

        async def one(k):
            async def receive():
                if k == 3:
                    return {"type": "http.disconnect"}
                return await asyncio.sleep(60)

            request = Request({"type": "http", "headers": []}, receive)
            await generation._compile_grammar(request, SamplingParams(regex=f"a{k}"))

        return await asyncio.gather(*map(one, range(8)), return_exceptions=True)

    ends = asyncio.run(ask())
    kinds = [type(e) for e in ends]
    assert kinds.count(ClientDisconnected) == 1 and isinstance(ends[3], ClientDisconnected)
    assert most == 2 and sorted(asked) == [f"a{k}" for k in range(8) if k != 3]


def test_cached_grammars_are_small(open_to_pages):
    def memory():
        with open(f"/proc/{open_to_pages.process.pid}/statm") as file:
            return int(file.read().split()[1]) * 4096

    before = memory()
    for k in range(8):
        pattern = f"((a{{1000}}){{1000}}){{1000}}{k}"
        httpx.post(
            f"{open_to_pages.url}/v1/completions", timeout=60,
            headers={"Authorization": "Bearer key"},
            json=ASKED | {"response_format": {"type": "regex", "pattern": pattern}})
    grown = memory() - before
    assert grown < 250 << 20


class Exhausted:
    """A parser that fails during an answer."""

    def compute_bitmask(self):
        return bytes(4)

    def is_error(self):
        return True

    def consume_token(self, token):
        return False

    def get_error(self):
        return "too many expressions constructed\n<state>\nTokens: .."


def test_a_grammar_that_needs_too_much_on_its_way_is_the_clients_fault_too():
    grammar = Grammar(Exhausted(), 32)
    for use in (grammar.allowed, lambda: grammar.accept(1)):
        with pytest.raises(BadGrammar) as found:
            use()
        assert found.value.message.endswith(": too many expressions constructed")


def test_a_key_of_the_command_line_may_have_any_letters(folder):
    with fake(folder, api_key="ключ") as server:
        at = urlsplit(server.url)
        with socket.create_connection((at.hostname, at.port), timeout=60) as sock:
            sock.sendall("GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                         "Authorization: Bearer ключ\r\n\r\n".encode())
            assert sock.recv(4096).startswith(b"HTTP/1.1 200 ")


# ---- names of the model --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def renamed(folder):
    names = [x for name in ("org/my-model", "gpt-4o", "größe 1%")
             for x in ("--served-model-name", name)]
    with running([sys.executable, "-m", "eventtensor.cli", "serve", str(folder), *names, "--port",
                  "0", "--target", "cpu", "--dtype", "f32", "--max-model-len", "64",
                  "--max-num-seqs", "2", "--allow-origin", SITE,
                  "--allow-origin", "https://other.example"]) as made:
        yield made


def test_a_model_may_have_several_names(renamed):
    client = renamed.client()
    names = ["org/my-model", "gpt-4o", "größe 1%"]
    assert [m.id for m in client.models.list()] == names
    for name in names:
        assert client.models.retrieve(name).id == name
        chat = [{"role": "user", "content": "ab"}]
        assert client.completions.create(**ASKED | {"model": name}).model == name
        assert client.chat.completions.create(
            model=name, messages=chat, max_tokens=2).model == name
        chunks = client.chat.completions.create(
            model=name, messages=chat, max_tokens=2, stream=True)
        assert {chunk.model for chunk in chunks} == {name}
        assert client.responses.create(model=name, input="ab", max_output_tokens=16).model == name
        found = httpx.post(f"{renamed.url}/v1/messages", json={
            "model": name, "messages": chat, "max_tokens": 2})
        assert found.json()["model"] == name
    assert httpx.get(f"{renamed.url}/v1/models/org%2Fmy-model").json()["id"] == "org/my-model"
    with pytest.raises(openai.NotFoundError, match="'gpt-4o', 'größe 1%' are"):
        client.models.retrieve("my-model")
    described = httpx.get(f"{renamed.url}/openapi.json").json()["components"]["schemas"]
    assert described["ChatBody"]["properties"]["model"]["enum"] == names


def test_origins_are_allowed_under_both_names_of_the_option(renamed):
    for origin, allowed in ((SITE, True), ("https://other.example", True), ("https://x.y", False)):
        found = preflight(renamed, origin)
        assert ("access-control-allow-origin" in found.headers) == allowed
