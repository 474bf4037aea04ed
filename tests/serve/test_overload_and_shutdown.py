"""Disconnects, overload, stuck and failing steps, and shutdown."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx
import openai
import pytest

from eventtensor.errors import BadAddress
from eventtensor.llm.serve.listen_sockets import bind
from tests.serve.server_process import fake

LONG = {"model": "tiny", "prompt": "ab", "max_tokens": 200, "ignore_eos": True}
SHORT = LONG | {"max_tokens": 5}


def post(server, body, path="/v1/completions", **options):
    return httpx.post(server.url + path, json=body, timeout=60, **options)


def streamed(server, body):
    """A running stream: its lines from the second on."""
    sock = opened(server, body | {"stream": True})
    found = b""
    while b"data:" not in found:
        found += sock.recv(4096)
    return sock


def everything(sock):
    """The bytes up to the end of the connection."""
    found = b""
    try:
        while piece := sock.recv(65536):
            found += piece
    except ConnectionError:
        pass
    return found


def opened(server, body, upto=None):
    """A connection with a sent body, or a part of one."""
    at = urlsplit(server.url)
    sock = socket.create_connection((at.hostname, at.port), timeout=60)
    data = json.dumps(body).encode()
    head = ("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n")
    sock.sendall((head.encode() + data)[:upto])
    return sock


@pytest.fixture(scope="module")
def slow(folder):
    """5 ms per step: 200 tokens take a second."""
    with fake(folder, step_s=0.005, max_num_seqs=2, max_waiting=2, max_body_bytes=10000) as made:
        yield made


# ---- clients that leave ------------------------------------------------------------------------


@pytest.mark.parametrize("body", [LONG, LONG | {"stream": True}, LONG | {"n": 2}])
def test_a_client_that_leaves_while_its_answer_is_made_frees_its_pages(slow, body):
    sock = opened(slow, body)
    slow.wait_for("num_requests_running", body.get("n", 1))
    sock.close()
    slow.at_rest()


def test_a_client_that_leaves_in_the_middle_of_a_stream_frees_its_pages(slow):
    streamed(slow, LONG).close()
    slow.at_rest()


def test_a_client_that_leaves_while_it_waits_leaves_the_queue(slow):
    first = [streamed(slow, LONG) for _ in range(2)]
    waiting = opened(slow, LONG)
    slow.wait_for("num_requests_waiting", 1)
    waiting.close()
    slow.wait_for("num_requests_waiting", 0)
    assert slow.metric("num_requests_running") == 2
    for sock in first:
        sock.close()
    slow.at_rest()


@pytest.mark.parametrize("upto", [0, 10, 100, 130])
def test_a_client_that_leaves_before_its_request_disturbs_no_other(slow, upto):
    opened(slow, LONG, upto).close()
    assert post(slow, SHORT).status_code == 200


# ---- limits ------------------------------------------------------------------------------------


def test_requests_beyond_the_queue_get_retry_after(slow):
    socks = [streamed(slow, LONG) for _ in range(2)] + [opened(slow, LONG) for _ in range(2)]
    slow.wait_for("num_requests_waiting", 2)
    found = post(slow, SHORT)
    assert found.status_code == 429
    assert "4 requests" in found.json()["error"]["message"]
    with pytest.raises(openai.RateLimitError):
        slow.client().completions.create(model="tiny", prompt="x")
    for sock in socks:
        sock.close()
    slow.at_rest()
    assert post(slow, SHORT).status_code == 200


def test_if_some_of_many_choices_find_no_room_none_starts(slow):
    with streamed(slow, LONG):
        assert post(slow, SHORT | {"n": 4}).status_code == 429
        slow.wait_for("num_requests_running", 1)
    slow.at_rest()


def test_more_choices_than_can_ever_be_are_the_clients_fault(slow):
    found = post(slow, SHORT | {"n": 5})
    assert found.status_code == 400 and "at most 4" in found.json()["error"]["message"]


def test_a_body_beyond_the_limit_is_refused_and_the_rest_not_read(slow):
    found = post(slow, LONG | {"prompt": "x" * 10000})
    assert found.status_code == 413 and "10000" in found.json()["error"]["message"]


def test_without_the_key_nothing_is_answered_but_health(folder):
    with fake(folder, api_key="secret") as server:
        for path, body in (("/v1/completions", SHORT), ("/tokenize", {"prompt": "x"})):
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"}):
                assert post(server, body, path, headers=headers).status_code == 401
        assert httpx.get(f"{server.url}/v1/models").status_code == 401
        assert httpx.get(f"{server.url}/health").status_code == 200
        assert server.client("secret").completions.create(**{
            k: v for k, v in SHORT.items() if k != "ignore_eos"}).choices
        with pytest.raises(openai.AuthenticationError):
            server.client("other").models.list()


# ---- steps that hang or fail -------------------------------------------------------------------


def test_a_stuck_step_fails_requests_until_it_ends(folder):
    with fake(folder, stuck_at=4, stuck_s=3.0, step_limit_s=0.4, patience_s=60) as server:
        sock = streamed(server, LONG)
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(post, server, SHORT)
            assert asked.result().status_code == 503
        health = httpx.get(f"{server.url}/health")
        assert (health.status_code, health.json()) == (503, {"status": "a step does not end"})
        refused = post(server, SHORT)
        assert refused.status_code == 503 and "ET504" in refused.json()["error"]["message"]
        rest = b""
        while b"[DONE]" not in rest:
            rest += sock.recv(65536)
        assert b'"error"' in rest and b"ET504" in rest
        with httpx.Client(base_url=server.url, timeout=60) as client:
            while client.get("/health").status_code == 503:
                pass  # no pause: what health says is to hold at once
            assert client.post("/v1/completions", json=SHORT).status_code == 200
        server.at_rest()


def test_a_step_that_never_ends_ends_the_process_with_the_reason(folder):
    with fake(folder, stuck_at=2, stuck_s=600, step_limit_s=0.2, patience_s=0.2) as server:
        assert post(server, LONG).status_code == 503
        assert server.exit_status() == 70
        assert "a step has not ended" in "".join(server.log)


def test_an_engine_that_fails_for_good_ends_the_process_with_the_reason(folder):
    with fake(folder, fail_from=1) as server:
        for _ in range(3):
            found = post(server, SHORT)
            assert found.status_code == 500 and "the device is gone" in found.text
        assert server.exit_status() == 1
        assert "ET503" in "".join(server.log) and "the device is gone" in "".join(server.log)


# ---- the end -----------------------------------------------------------------------------------


def test_on_shutdown_the_server_finishes_running_requests(folder):
    with fake(folder, step_s=0.005) as server:
        heard = []

        def listen():
            heard.extend(server.client().completions.create(
                **{k: v for k, v in LONG.items() if k != "ignore_eos"}, stream=True,
                extra_body={"ignore_eos": True}))

        listener = threading.Thread(target=listen)
        listener.start()
        server.wait_for("num_requests_running", 1)
        server.process.send_signal(signal.SIGTERM)
        listener.join(60)
        assert heard[-1].choices[0].finish_reason == "length"
        assert server.exit_status() == 0
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{server.url}/health")


def test_streams_that_do_not_end_in_time_get_an_error(folder):
    with fake(folder, step_s=0.2, drain_s=1) as server, ThreadPoolExecutor(1) as pool:
        sock = streamed(server, LONG)
        whole = pool.submit(post, server, LONG)
        half = opened(server, LONG, 130)
        server.wait_for("num_requests_running", 2)
        server.process.send_signal(signal.SIGTERM)
        rest = everything(sock)
        assert b"ET503: the server ends" in rest
        assert rest.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert whole.result().status_code == 503 and "ET503" in whole.result().text
        assert everything(half).startswith(b"HTTP/1.1 503 ")
        assert server.exit_status() == 0
        assert len(server.log) == 1, "".join(server.log)


@pytest.mark.parametrize("options", [
    {"step_s": 0.05, "drain_s": 1},
    {"stuck_at": 4, "stuck_s": 600, "drain_s": 1, "patience_s": 600},
    {"stuck_at": 4, "stuck_s": 5, "step_limit_s": 0.4}, {"step_s": 0.05, "fail_from": 4},
], ids=["the end", "the end of a stuck step", "a stuck step", "a failure"])
def test_a_client_whose_stream_is_cut_gets_an_error_and_no_broken_connection(folder, options):
    with fake(folder, **options) as server:
        stream = server.client().completions.create(
            model="tiny", prompt="ab", max_tokens=200, stream=True, extra_body={"ignore_eos": True})
        assert next(stream).choices
        if "drain_s" in options:
            server.process.send_signal(signal.SIGTERM)
        with pytest.raises(openai.APIError) as found:
            list(stream)
        assert type(found.value) is openai.APIError and "ET50" in found.value.message
        assert found.value.type == "server_error"
        if options.get("drain_s") and "stuck_s" not in options:
            assert server.exit_status() == 0
        assert len(server.log) == 1, "".join(server.log)


def test_a_client_that_does_not_read_the_end_of_a_stream_does_not_block_shutdown(folder):
    with fake(folder, drain_s=1, max_num_seqs=8, max_model_len=1000, pages=2000,
              step_s=0.005) as server:
        body = {"model": "tiny", "prompt": "ab", "max_tokens": 900, "ignore_eos": True, "n": 8,
                "logprobs": 20}
        sock = streamed(server, body)
        server.wait_for("num_requests_running", 8)
        server.process.send_signal(signal.SIGTERM)
        assert server.exit_status() == 0
        assert len(server.log) == 1, "".join(server.log)
        sock.close()


def test_a_second_signal_ends_it_at_once(folder):
    with fake(folder, step_s=0.2, drain_s=60) as server:
        sock = streamed(server, LONG)
        server.process.send_signal(signal.SIGINT)
        everything(opened(server, LONG, 0))
        server.process.send_signal(signal.SIGINT)
        assert server.exit_status() == 0
        assert len(server.log) == 1, "".join(server.log)
        sock.close()


# ---- the begin ---------------------------------------------------------------------------------


def test_a_taken_address_is_an_error_before_the_weights_load(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        done = subprocess.run(
            [sys.executable, "-m", "eventtensor.cli", "serve", str(tmp_path / "no-model"),
             "--port", str(other.getsockname()[1])], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "ET507" in done.stderr and "in use" in done.stderr
    assert "Traceback" not in done.stderr


def test_all_addresses_of_a_host_get_one_port():
    found = bind("localhost", 0)
    assert len({sock.getsockname()[1] for sock in found}) == 1
    with pytest.raises(BadAddress, match="port 80"):
        bind("192.0.2.1", 80)
    with pytest.raises(BadAddress, match="cannot listen at no"):
        bind("no.such.host.invalid", 80)
    for sock in found:
        sock.close()
