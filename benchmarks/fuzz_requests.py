"""Malformed and odd requests, from hand-written generators."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any

from benchmarks.http_client import Outcomes, exchange, post, status
from eventtensor.llm.bench.completion_client import Address

_NUMBER = (0, -1, 1, 2.5, 1e308, -1e308, float("nan"), 1 << 70, True)
_TEXT = ("", "x", "\x00", "ü" * 50, "a" * 5000)
_ODD: tuple[Any, ...] = (*_NUMBER, *_TEXT, [], {}, [[]], [1, 2], None)
_FIELDS = ("model", "prompt", "messages", "max_tokens", "temperature", "top_p", "top_k", "min_p",
           "n", "seed", "stop", "stream", "stream_options", "logprobs", "presence_penalty",
           "repetition_penalty", "stop_token_ids", "ignore_eos", "response_format", "echo", "user",
           "top_logprobs", "max_completion_tokens", "tools", "prompt_logprobs",
           "add_special_tokens")


def malformed_request(draw: random.Random, model: str) -> bytes:
    """The bytes of a request with something wrong or odd in it."""
    good: dict[str, Any] = {"model": model, "prompt": "ab", "max_tokens": 2}
    path = draw.choice(["/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"])
    if path == "/v1/chat/completions":
        good = {"model": model, "messages": [{"role": "user", "content": "a"}], "max_tokens": 2}
    for _ in range(draw.randint(1, 3)):
        good[draw.choice(_FIELDS)] = draw.choice(_ODD)
    body = json.dumps(good).encode()
    kinds: list[Callable[[], bytes]] = [
        lambda: post(path, body), lambda: post(path, body), lambda: post(path, body),
        lambda: post(path, body[: draw.randrange(len(body))]),
        lambda: post(path, bytes(draw.randrange(256) for _ in range(draw.randrange(60)))),
        lambda: post(path, b"[" * draw.randrange(50000)),
        lambda: post(path, body, Content_Length=draw.choice(["-1", "x", "1", "99999999999"])),
        lambda: post(path, body, Transfer_Encoding="chunked"),
        lambda: post(draw.choice(["/", "//", "/v1", "/v1/../x", "/%00", "/metrics"]), body),
        lambda: post(path, body, X=draw.choice(["a" * 70000, "\x01", "ü"])),
        lambda: draw.choice([b"GET", b"\r\n\r\n", b"\x16\x03\x01", b"GET / HTTP/9\r\n\r\n", b""]),
    ]
    return draw.choice(kinds)()


async def fuzz(at: Address, model: str, count: int, seed: int, wait_s: float = 0.2) -> Outcomes:
    """Sends malformed requests; after each the server must answer a well-formed one. A server may
    hang up on bytes that are no HTTP, and wait for a missing body: then the client leaves."""
    draw, seen = random.Random(seed), Outcomes()
    good = post("/v1/completions", json.dumps(
        {"model": model, "prompt": [5], "max_tokens": 1, "ignore_eos": True}).encode())
    for _ in range(count):
        data = malformed_request(draw, model)
        try:
            answer = await asyncio.wait_for(exchange(at, data), wait_s)
        except TimeoutError:
            answer = None
        code = status(answer or b"")
        seen.ends[str(code)] += 1
        if code >= 500 and code != 503:
            seen.wrong.append(f"{data[:500]!r} gave {answer!r}")
        if status(await exchange(at, good) or b"") != 200:
            seen.wrong.append(f"no good answer after {data[:500]!r}")
    return seen
