"""Random requests: whole, truncated, slow, or not HTTP at all.

The server answers none with a server error, delays no other request, and bounds its memory.
ET_FUZZ_SECONDS sets the duration; a seed always draws the same requests."""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from pathlib import Path

import httpx
import pytest

from benchmarks.fuzz_requests import malformed_request
from benchmarks.http_client import post, status
from eventtensor.llm.bench.completion_client import Address
from tests.serve.server_process import fake

SECONDS = float(os.environ.get("ET_FUZZ_SECONDS", "4"))
CLIENTS = 6
MAX_S = 5.0  # that /health may take on a machine that does much else
MAX_GROWTH_BYTES = 400 << 20  # that the server may grow by
GOOD = {"model": "tiny", "prompt": "ab", "max_tokens": 5, "temperature": 0, "ignore_eos": True}
PATHS = ("/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages",
         "/tokenize", "/detokenize")
LETTERS = ("a", " ", "ü", "\\n", "<|end|>", "\\u0000", "{", '\\"', "<|turn|>", "\ud7ff")
VALUES = ("null", "1", "[]", "{}", '""', "[1]", "0.5", '{"a":1}', "[[[[]]]]", "true", "1e999")
FIELDS = (b"Host: evil.example", b"Host:", b"Content-Type: text/plain", b"Expect: 100-continue",
          b"Authorization: Bearer \xff", b"Origin: https://evil.example", b"Upgrade: websocket",
          b"Connection: upgrade", b"Transfer-Encoding: chunked", b"Content-Length: 3", b"X: \x00",
          b"Content-Encoding: gzip", b"Connection: close, keep-alive", b"Trailer: a", b": b", b"X")
PATTERNS = ("a{1000000}", "(((", "(a|b)*c", "[", "(?=a)", "a{1,1000}{1,1000}", ".*" * 500, "é+")


# ---- what is sent --------------------------------------------------------------------------------


def large(draw: random.Random) -> bytes:
    """Bodies with many values, keys or letters, or with deep nesting."""
    count = 10 ** draw.uniform(1, 6)
    item = draw.choice(VALUES)
    many = ",".join([item] * int(count / len(item) + 1))
    keys = ",".join(f'"{k}":{item}' for k in range(int(count / (8 + len(item)))))
    text = draw.choice(LETTERS) * int(count / 8)
    body = draw.choice((
        f'{{"model":"tiny","prompt":[{many}]}}', f'{{"tokens":[{many}]}}', f"{{{keys}}}",
        f'{{"model":"tiny","messages":[{many}]}}', f'{{"model":"tiny","messages":[{{{keys}}}]}}',
        f'{{"model":"tiny","prompt":"{text}","max_tokens":2}}', f'{{"prompt":"{text}"}}',
        f'{{"model":"tiny","input":[{many}]}}', f'{{"model":"tiny","input":"{text}"}}',
        f'{{"messages":[{{"role":"user","content":"{text}"}}]}}', "[" * int(count),
        f'{{"model":"tiny","prompt":"a","stop":[{many}]}}', '{"a":' * int(count / 5),
        f'{{"model":"tiny","prompt":"a","response_format":{{"type":"json_schema","json_schema":'
        f'{{"name":"x","schema":{{{keys}}}}}}}}}', f'{{"model":"{text}","prompt":"a"}}',
    ))
    return post(draw.choice(PATHS), body.encode(errors="surrogatepass"))


def grammar(draw: random.Random) -> bytes:
    schema = {draw.choice(("type", "enum", "$ref", "items", "anyOf", "pattern", "not")):
              draw.choice(("#", "string", "object", [], {}, [{}], "[", {"$ref": "#"}, 5, None))}
    form = draw.choice(({"type": "regex", "pattern": draw.choice(PATTERNS)},
                        {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}))
    body = GOOD | {"ignore_eos": False, "response_format": form, "n": draw.choice((1, 4)),
                   "stream": draw.random() < 0.3}
    return post("/v1/completions", json.dumps(body).encode())


def head(draw: random.Random) -> bytes:
    lines = [draw.choice(FIELDS) for _ in range(draw.randint(0, 6))]
    if draw.random() < 0.2:
        lines += [b"A: " + b"a" * draw.randrange(100000)]
    if draw.random() < 0.1:
        lines += [b"A: b"] * draw.randrange(500)
    draw.shuffle(lines)
    body = json.dumps(GOOD).encode()
    first = draw.choice((b"POST /v1/completions HTTP/1.1", b"GET /health HTTP/1.1",
                         b"GET /" + b"x" * draw.randrange(90000) + b" HTTP/1.1",
                         b"OPTIONS * HTTP/1.1", b"HEAD / HTTP/1.0", b"CONNECT a:1 HTTP/1.1",
                         b"GET http://a/health HTTP/1.1", b"GET /%ff%00?%zz HTTP/1.1"))
    return b"\r\n".join((first, *lines, b"", body))


def chunked(draw: random.Random) -> bytes:
    body, parts = json.dumps(GOOD).encode(), []
    while body:
        size = draw.choice((1, 2, 7, 100))
        parts += [b"%x%b\r\n%b\r\n" % (len(body[:size]), draw.choice((b"", b";a=b")), body[:size])]
        body = body[size:]
    parts += [draw.choice((b"0\r\n\r\n", b"0\r\nA: b\r\n\r\n", b"", b"x\r\n", b"f" * 20))]
    first = post("/v1/completions", b"", Transfer_Encoding="chunked")
    return first.replace(b"Content-Length: 0\r\n", b"") + b"".join(parts)


def bytes_of(draw: random.Random) -> bytes:
    kind = draw.choice((large, large, grammar, head, chunked,
                        lambda d: malformed_request(d, "tiny")))
    data = kind(draw)
    if draw.random() < 0.1:
        data = data * draw.randint(2, 12)
    if draw.random() < 0.1:
        at = draw.randrange(len(data) + 1)
        data = data[:at] + draw.randbytes(draw.randint(1, 8)) + data[at:]
    return data


# ---- and how -------------------------------------------------------------------------------------


async def send(at: Address, data: bytes, draw: random.Random) -> list[int]:
    """The statuses of the responses."""
    reader, writer = await asyncio.open_connection(at.host, at.port)
    patience = draw.choice((0.0, 0.05, 0.5, 2.0))
    found = b""
    try:
        if draw.random() < 0.2:
            for k in range(0, len(data), max(1, len(data) // 5)):
                writer.write(data[k : k + max(1, len(data) // 5)])
                await asyncio.sleep(draw.random() * 0.1)
        else:
            writer.write(data)
        async with asyncio.timeout(patience):
            while piece := await reader.read(1 << 16):
                found += piece
    except (TimeoutError, ConnectionError):
        pass
    finally:
        writer.transport.abort()
    answers = found.split(b"HTTP/1.1 ")[1:]
    return [status(b"HTTP/1.1 " + answer) for answer in answers]


async def pulse(url: str, until: float) -> float:
    """The longest response time of /health."""
    worst = 0.0
    async with httpx.AsyncClient(timeout=60) as client:
        while time.monotonic() < until:
            began = time.monotonic()
            assert (await client.get(f"{url}/health")).status_code == 200
            worst = max(worst, time.monotonic() - began)
            await asyncio.sleep(0.02)
    return worst


async def attack(url: str, seconds: float) -> tuple[int, list[bytes], float]:
    """How many requests there were, those that the server answered by an error of its own, and the
    longest time that /health took."""
    at, until, wrong, sent = Address.parse(url), time.monotonic() + seconds, list[bytes](), 0

    async def client(seed: int) -> None:
        nonlocal sent
        draw = random.Random(seed)
        while time.monotonic() < until:
            data = bytes_of(draw)
            sent += 1
            if any(code >= 500 for code in await send(at, data, draw)):
                wrong.append(data[:300])

    worst, *_ = await asyncio.gather(pulse(url, until), *(client(k) for k in range(CLIENTS)))
    return sent, wrong, worst


@pytest.fixture
def server(folder):
    with fake(folder, max_body_bytes=1 << 20, receive_s=2, max_connections=200, max_waiting=40,
              api_key=None) as made:
        yield made


def test_whatever_is_sent_the_server_goes_on(server):
    def answer():
        found = httpx.post(f"{server.url}/v1/completions", json=GOOD, timeout=60)
        return found.status_code, found.json()["choices"]

    def memory():
        text = Path(f"/proc/{server.process.pid}/statm").read_text()
        return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before, held = answer(), memory()
    sent, wrong, worst = asyncio.run(attack(server.url, SECONDS))
    assert not wrong, wrong[:5]
    assert sent > 5 * SECONDS
    server.at_rest()
    assert before[0] == 200 and answer() == before
    assert worst < MAX_S
    assert memory() - held < MAX_GROWTH_BYTES
    assert len(server.log) == 1, "".join(server.log)
