"""Limits of connections: endless heads, slow clients, idle connections, too many requests."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections import Counter
from urllib.parse import urlsplit

import httpx
import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from eventtensor.llm.serve.connection import Connection, ConnectionLimits
from eventtensor.llm.serve.listen_sockets import bind
from tests.serve.server_process import fake

BODY = json.dumps({"model": "tiny", "prompt": "ab", "max_tokens": 3}).encode()
HEAD = (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % len(BODY))
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def server(folder):
    with fake(folder, receive_s=2, max_connections=40, max_body_bytes=100000) as made:
        yield made


def connected(server):
    at = urlsplit(server.url)
    return socket.create_connection((at.hostname, at.port), timeout=60)


def ended(sock):
    """The bytes up to the end of the connection."""
    found = b""
    try:
        while piece := sock.recv(65536):
            found += piece
    except ConnectionError:
        pass
    return found


def answer(sock):
    """One whole response to BODY."""
    found = b""
    while b'"usage"' not in found:
        found += sock.recv(65536)
    return found


def memory(server):
    with open(f"/proc/{server.process.pid}/statm") as file:
        return int(file.read().split()[1]) * 4096


def sent_until_refused(sock, piece, most):
    """How many bytes the socket accepted."""
    sent = 0
    try:
        while sent < most:
            sock.sendall(piece)
            sent += len(piece)
    except ConnectionError:
        pass
    return sent


# ---- heads ---------------------------------------------------------------------------------------

CHUNKED = (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
           b"Transfer-Encoding: chunked\r\n\r\n")
ENDLESS = {
    "lines": (b"GET /health HTTP/1.1\r\nHost: localhost\r\n", b"A: bcd\r\n" * 1000),
    "a value": (b"GET /health HTTP/1.1\r\nHost: localhost\r\nA: ", b"a" * 8000),
    "a name": (b"GET /health HTTP/1.1\r\nHost: localhost\r\n", b"a" * 8000),
    "a URL": (b"GET /", b"a" * 8000),
    "a trailer": (CHUNKED + b"1\r\na\r\n0\r\n", b"A: bcd\r\n" * 1000),
    "a trailer's value": (CHUNKED + b"0\r\nA: ", b"a" * 8000),
    "an extension": (CHUNKED + b"1;", b"a" * 8000),
    "a body": (CHUNKED, b"1\r\n \r\n" * 1000),
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_what_has_no_end_is_refused_early(server, kind):
    begin, more = ENDLESS[kind]
    before = memory(server)
    with connected(server) as sock:
        sock.sendall(begin)
        assert sent_until_refused(sock, more, 64 << 20) < 64 << 20
    assert memory(server) - before < 16 << 20
    assert httpx.get(f"{server.url}/health").status_code == 200


@pytest.mark.parametrize("fields", [{"A": "a" * 70000}, {f"A{k}": "b" for k in range(200)}])
def test_a_head_that_is_too_long_gets_an_error(server, fields):
    found = httpx.get(f"{server.url}/health", headers=fields)
    assert found.status_code == 431 and found.json()["error"]["message"]
    found = httpx.get(f"{server.url}/health", headers={"A": "a" * 60000})
    assert found.status_code == 200


def test_a_body_that_says_that_it_is_too_long_is_not_read(server):
    with connected(server) as sock:
        sock.sendall(HEAD.replace(b": %d" % len(BODY), b": 100001"))
        assert ended(sock).startswith(b"HTTP/1.1 413 ")


def test_heads_and_bodies_that_follow_each_other_are_no_long_head(server):
    with connected(server) as sock:
        for _ in range(30):
            sock.sendall(HEAD.replace(b"\r\n\r\n", b"\r\nA: " + b"a" * 8000 + b"\r\n\r\n") + BODY)
            assert answer(sock).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("protocol", ["h2c", "websocket"])
@pytest.mark.parametrize("cut", [1, 50, 5000])
def test_a_wish_for_another_protocol_changes_nothing(server, protocol, cut):
    wish = f"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {protocol}\r\n\r\n".encode()
    chunks = b"5\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (BODY[:5], len(BODY) - 5, BODY[5:])
    chunked = CHUNKED.replace(b"/tokenize", b"/v1/completions")
    sent = b"".join((
        HEAD[:-2], wish, BODY, GET[:-2], wish, chunked[:-2], wish, chunks,
        GET[:-2], b"Connection: close\r\n", wish))
    with connected(server) as sock:
        for at in range(0, len(sent), cut):
            sock.sendall(sent[at : at + cut])
        found = ended(sock)
    assert found.count(b"HTTP/1.1 200 ") == 4 and found.count(b'"usage"') == 2, found
    assert found.endswith(b'{"status":"ok"}')


def test_it_is_no_proxy(server):
    for target in (b"localhost:80", b"/"):
        with connected(server) as sock:
            sock.sendall(b"CONNECT " + target + b" HTTP/1.1\r\nHost: localhost\r\n\r\n" + GET)
            assert ended(sock).count(b"HTTP/1.1 ") == 1


# ---- time ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("begin", "answer"), [
    (b"", b""), (b"\r\n", b""), (b"GET /hea", b"HTTP/1.1 408 "), (HEAD, b"HTTP/1.1 408 "),
    (HEAD + BODY[:9], b"HTTP/1.1 408 "), (GET + b"GET /hea", b"HTTP/1.1 200 "),
], ids=str)
def test_a_request_that_does_not_come_ends_its_connection(server, begin, answer):
    with connected(server) as sock:
        sock.sendall(begin)
        assert ended(sock).startswith(answer)


@pytest.mark.parametrize(("begin", "more"), [(GET[:-2] + b"A: b", b"b"), (b"", b"\r\n")])
def test_bytes_now_and_then_do_not_keep_a_connection(server, begin, more):
    with connected(server) as sock:
        sock.sendall(begin)
        with pytest.raises(ConnectionError):
            for _ in range(100):  # 10 s, where 2 s are allowed
                time.sleep(0.1)
                sock.sendall(more)


def test_requests_on_one_connection_have_their_time_each(server):
    with connected(server) as sock:
        for _ in range(5):
            sock.sendall(HEAD)
            time.sleep(0.5)
            sock.sendall(BODY)
            assert answer(sock).startswith(b"HTTP/1.1 200 ")


def test_a_client_that_does_not_read_its_answer_loses_it():
    async def much(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(64 << 20)})

    async def serve():
        config, state = Config(much, log_level="critical"), ServerState()
        config.load()
        server = await asyncio.get_running_loop().create_server(lambda: Connection(
            ConnectionLimits(1000, receive_s=0.3), Counter(), config=config, server_state=state,
            app_state={}), "127.0.0.1", 0)
        with socket.create_connection(server.sockets[0].getsockname()) as sock:
            sock.sendall(GET)
            for wanted in (1, 0):
                async with asyncio.timeout(60):
                    while len(state.connections) != wanted:
                        await asyncio.sleep(0.01)
            found = await asyncio.to_thread(ended, sock)
            assert found.startswith(b"HTTP/1.1 200 ") and len(found) < 64 << 20
        server.close()

    asyncio.run(serve())


# ---- many ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("begin", [b"", b"GET /hea", HEAD + BODY[:9], GET], ids=str)
def test_connections_that_ask_nothing_give_way(server, begin):
    socks = []
    for _ in range(100):
        socks.append(connected(server))
        socks[-1].sendall(begin)
    assert httpx.get(f"{server.url}/health", timeout=60).status_code == 200
    for sock in socks:
        sock.close()


def test_busy_connections_stay_and_new_ones_are_refused(folder):
    with fake(folder, max_connections=3, step_s=0.01) as server:
        long = json.dumps({"model": "tiny", "prompt": "ab", "max_tokens": 100, "ignore_eos": True,
                           "stream": True}).encode()
        socks = [connected(server) for _ in range(3)]
        for sock in socks:
            sock.sendall(HEAD.replace(b": %d" % len(BODY), b": %d" % len(long)) + long)
            assert sock.recv(100).startswith(b"HTTP/1.1 200 ")
        with connected(server) as late:
            assert ended(late).startswith(b"HTTP/1.1 503 ")
        for sock in socks:
            found = b""
            while b"[DONE]" not in found:
                found += sock.recv(65536)
            sock.close()


def test_requests_sent_ahead_are_answered_in_order_and_few(server):
    with connected(server) as sock:
        sock.sendall((HEAD + BODY) * 5 + GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        found = ended(sock)
        assert found.count(b"HTTP/1.1 200 ") == 6 and found.endswith(b'{"status":"ok"}')
    with connected(server) as sock:
        sent_until_refused(sock, GET * 5000, 1 << 20)
        assert ended(sock).count(b"HTTP/1.1 200 ") < 100
    server.at_rest()


def test_a_client_that_leaves_with_pipelined_requests_frees_its_pages(folder):
    with fake(folder, step_s=0.01) as server:
        long = json.dumps({"model": "tiny", "prompt": "ab", "max_tokens": 200,
                           "ignore_eos": True}).encode()
        with connected(server) as sock:
            sock.sendall((HEAD.replace(b": %d" % len(BODY), b": %d" % len(long)) + long) * 2)
            server.wait_for("num_requests_running", 1)
        server.at_rest()
        assert server.metric("generation_tokens_total") < 200


def test_what_is_written_is_sent_at_once():
    """Nagle's algorithm would hold each later write back until the client answers the first."""
    async def has_no_delay():
        loop = asyncio.get_running_loop()
        found = loop.create_future()

        class Accepted(asyncio.Protocol):
            def connection_made(self, transport):
                sock = transport.get_extra_info("socket")
                found.set_result(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

        [listening] = bind("127.0.0.1", 0)
        server = await loop.create_server(Accepted, sock=listening)
        with socket.create_connection(listening.getsockname()):
            no_delay = await asyncio.wait_for(found, 60)
        server.close()
        return no_delay

    assert asyncio.run(has_no_delay())
