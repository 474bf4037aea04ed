"""Compressed request bodies."""

from __future__ import annotations

import gzip
import json
import zlib

import httpx
import pytest

from tests.serve.server_process import fake


def gzipped(data: bytes) -> bytes:
    """Without the time, which would make the names of tests differ from process to process."""
    return gzip.compress(data, mtime=0)


ASKED = json.dumps({"model": "tiny", "prompt": "ab", "max_tokens": 3}).encode()
MOST = 200_000
SMALL = {"max_body_bytes": MOST, "max_model_len": 64}


@pytest.fixture(scope="module")
def server(folder):
    with fake(folder, **SMALL) as made:
        yield made


def post(server, body, encoding):
    return httpx.post(f"{server.url}/v1/completions", content=body, timeout=60, headers=[
        ("Content-Type", "application/json"), *(("Content-Encoding", e) for e in encoding)])


def memory(server):
    with open(f"/proc/{server.process.pid}/statm") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (gzipped(ASKED), ["gzip"]),
        (gzipped(ASKED), ["GZIP"]),
        (gzipped(ASKED), ["x-gzip"]),
        (zlib.compress(ASKED), ["deflate"]),
        (ASKED, ["identity"]),
        (ASKED, [""]),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_compressed_body_is_read(server, body, encoding):
    found = post(server, body, encoding)
    assert found.status_code == 200, found.text


def test_it_may_come_in_many_parts(server):
    large = json.dumps(json.loads(ASKED) | {"user": "x" * 150_000}).encode()
    packed = gzipped(large)
    found = post(server, (packed[k : k + 7] for k in range(0, len(packed), 7)), ["gzip"])
    assert found.status_code == 200, found.text


@pytest.mark.parametrize(
    ("body", "encoding", "status", "shown"),
    [
        (ASKED, ["br"], 415, "'br'"),
        (ASKED, ["zstd"], 415, "zstd"),
        (ASKED, ["x" * 999], 415, "xx"),
        (gzipped(gzipped(ASKED)), ["gzip", "gzip"], 415, "gzip, gzip"),
        (gzipped(ASKED) + b"more", ["gzip"], 400, "more after its end"),
        (gzipped(ASKED) + gzipped(b""), ["gzip"], 400, "more after its end"),
        (gzipped(ASKED)[:-3], ["gzip"], 400, "end is missing"),
        (b"", ["gzip"], 400, "missing"),
        (ASKED, ["gzip"], 400, "cannot be inflated"),
        (ASKED, ["deflate"], 400, "cannot be inflated"),
        (gzipped(b"{"), ["gzip"], 400, "JSON"),
        (gzipped(b" " * (MOST + 1)), ["gzip"], 413, f"more than {MOST} bytes"),
        (gzipped(b'{"prompt":[' + b"[]," * 60_000), ["gzip"], 400, "lists, objects and fields"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_wrong_encoding_gets_an_error_with_the_cause(server, body, encoding, status, shown):
    found = post(server, body, encoding)
    assert found.status_code == status and shown in found.json()["error"]["message"], found.text
    assert len(found.content) < 500
    if status == 415:
        assert found.headers["accept-encoding"] == "gzip, deflate"


def test_a_bomb_costs_no_more_than_a_body_of_the_limit(server):
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(180)) + packer.flush()
    assert len(bomb) < MOST
    post(server, gzipped(ASKED), ["gzip"])
    before = memory(server)
    for _ in range(3):
        assert post(server, bomb, ["gzip"]).status_code == 413
    assert memory(server) - before < 8 << 20
