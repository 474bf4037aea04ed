"""Every response has the id of its request."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections import Counter
from urllib.parse import urlsplit

import httpx
import openai
import pytest

from eventtensor.llm.serve.request_ids import RequestIdMiddleware
from tests.serve.server_process import fake

ASKED = {"model": "tiny", "prompt": "ab", "max_tokens": 3}
SITE = "https://example.org"


@pytest.fixture(scope="module")
def server(folder):
    with fake(folder, api_key="key", origins=[SITE], max_body_bytes=10000,
              max_connections=40) as made:
        yield made


CASES = {
    "an answer": ("POST", "/v1/completions", ASKED, 200),
    "a stream": ("POST", "/v1/completions", ASKED | {"stream": True}, 200),
    "a wrong body": ("POST", "/v1/completions", {}, 400),
    "no such path": ("GET", "/nothing", None, 404),
    "no such method": ("GET", "/v1/completions", None, 405),
    "a read": ("GET", "/health", None, 200),
    "a body that is refused by its length": ("POST", "/v1/completions", {"p": "x" * 20000}, 413),
}


@pytest.mark.parametrize("case", CASES)
def test_every_answer_says_the_name_of_its_request(server, case):
    method, path, body, status = CASES[case]
    key = {"Authorization": "Bearer key"}
    given = httpx.request(method, server.url + path, json=body,
                          headers=key | {"X-Request-ID": "mine-7"})
    assert (given.status_code, given.headers["x-request-id"]) == (status, "mine-7")
    made = httpx.request(method, server.url + path, json=body, headers=key)
    assert re.fullmatch("req_[0-9a-f]{32}", made.headers["x-request-id"])


@pytest.mark.parametrize(("headers", "status"), [
    ({}, 401), ({"Authorization": "Bearer key", "Host": "evil.example"}, 421),
    ({"Authorization": "Bearer key", "A": "a" * 70000}, 431),
])
def test_refusals_say_it_too(server, headers, status):
    found = httpx.get(f"{server.url}/v1/models", headers={"x-request-id": "mine"} | headers)
    assert (found.status_code, found.headers["x-request-id"]) == (status, "mine")


def test_a_request_that_is_none_has_a_name_as_well(server):
    at = urlsplit(server.url)
    with socket.create_connection((at.hostname, at.port), timeout=60) as sock:
        sock.sendall(b"no HTTP\r\n\r\n")
        assert re.search(rb"\r\nx-request-id: req_[0-9a-f]{32}\r\n", sock.recv(4096))


@pytest.mark.parametrize("name", [b"", b"a b", b"x" * 129, "ü".encode(), b"a\x7f"])
def test_a_name_that_is_long_or_not_plain_is_not_sent_back(server, name):
    found = httpx.get(f"{server.url}/health", headers=[(b"x-request-id", name)])
    assert found.headers["x-request-id"].startswith("req_")


def test_clients_find_it(server):
    answer = server.client("key").completions.create(**ASKED)
    assert answer._request_id.startswith("req_")
    with pytest.raises(openai.BadRequestError) as found:
        server.client("key").completions.create(**ASKED | {"max_tokens": 9999})
    assert found.value.request_id.startswith("req_")


def test_anthropics_clients_find_it_under_their_name(server):
    found = httpx.get(f"{server.url}/v1/messages", headers={"x-request-id": "mine"})
    assert found.headers["request-id"] == found.headers["x-request-id"] == "mine"


def test_pages_may_read_it(server):
    found = httpx.get(f"{server.url}/health", headers={"Origin": SITE})
    assert "x-request-id" in found.headers["access-control-expose-headers"].lower()
    asked = httpx.options(f"{server.url}/v1/completions", headers={
        "Origin": SITE, "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type,x-request-id,x-stainless-os"})
    assert asked.status_code == 200 and "x-request-id" in asked.headers
    assert "x-stainless-os" in asked.headers["access-control-allow-headers"]


def test_a_failure_is_logged_with_it(caplog, monkeypatch):
    for name in ("uvicorn", "uvicorn.error"):  # a server of this process may have set them up
        monkeypatch.setattr(logging.getLogger(name), "propagate", True)
        monkeypatch.setattr(logging.getLogger(name), "level", logging.ERROR)

    async def broken(scope, receive, send):
        raise ValueError

    scope = {"type": "http", "path": "/", "headers": [(b"x-request-id", b"mine")]}
    with pytest.raises(ValueError):
        asyncio.run(RequestIdMiddleware(broken, Counter())(scope, None, None))
    assert "request mine has failed" in caplog.text
