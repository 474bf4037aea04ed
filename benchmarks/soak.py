"""A server under everything that clients do: mixed requests, some cancelled or cut off at any
phase, bursts beyond the queue, and bodies that make no sense. Run it against a server of the tiny
model or of SmolLM2; it ends with an error unless every answer is whole or a clear refusal, all
pages come back and memory stays flat.

    python benchmarks/soak.py --model random:tiny-llama --requests 2000 --clients 64 --fuzz 5000
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eventtensor.bench.client import Address
from eventtensor.bench.outside import server

FINE = {200, 429}
_NUMBER = (0, -1, 1, 2.5, 1e308, -1e308, float("nan"), 1 << 70, True)
_TEXT = ("", "x", "\x00", "ü" * 50, "a" * 5000)
_ODD: tuple[Any, ...] = (*_NUMBER, *_TEXT, [], {}, [[]], [1, 2], None)
_FIELDS = ("model", "prompt", "messages", "max_tokens", "temperature", "top_p", "top_k", "min_p",
           "n", "seed", "stop", "stream", "stream_options", "logprobs", "presence_penalty",
           "repetition_penalty", "stop_token_ids", "ignore_eos", "response_format", "echo", "user",
           "top_logprobs", "max_completion_tokens", "tools")


@dataclass
class Seen:
    """What became of the requests; `wrong` are those that are neither whole nor refused."""

    ends: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


# ---- one connection ----------------------------------------------------------------------------


async def exchange(at: Address, data: bytes, leave_after: float | None = None) -> bytes | None:
    """What comes back for these bytes, up to the end of the connection; None if we left."""
    reader, writer = await asyncio.open_connection(at.host, at.port)
    try:
        writer.write(data)
        if leave_after is None:
            return await asyncio.wait_for(reader.read(-1), 120)
        await asyncio.sleep(leave_after)
        return None
    except ConnectionError:
        return b""
    finally:
        writer.close()


def post(path: str, body: bytes, **fields: str) -> bytes:
    heads = {"Host": "x", "Connection": "close", "Content-Type": "application/json",
             "Content-Length": str(len(body))} | {k.replace("_", "-"): v for k, v in fields.items()}
    lines = "".join(f"{k}: {v}\r\n" for k, v in heads.items())
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


def status(answer: bytes) -> int:
    found = re.match(rb"HTTP/1\.1 (\d{3}) ", answer)
    return int(found[1]) if found else 0


# ---- soak --------------------------------------------------------------------------------------


def wish(draw: random.Random, model: str, tokens: int) -> dict[str, Any]:
    """Some request that makes sense."""
    prompt = [draw.randrange(3, 250) for _ in range(draw.choice([1, 5, 40, 130]))]
    if draw.random() < 0.3:
        prompt = [7] * draw.choice([129, 140])  # begins that are shared
    extra = draw.choice([{}, {}, {"temperature": 0}, {"logprobs": 2}, {"min_p": 0.1},
                         {"frequency_penalty": 0.5}, {"n": 2}, {"top_k": 9, "top_p": 0.8}])
    return {"model": model, "prompt": prompt, "max_tokens": draw.randint(1, tokens),
            "ignore_eos": True, "seed": draw.randrange(99), "stream": draw.random() < 0.5, **extra}


async def one(at: Address, draw: random.Random, model: str, tokens: int, seen: Seen) -> None:
    body = wish(draw, model, tokens)
    data = post("/v1/completions", json.dumps(body).encode())
    leaves = draw.random()
    if leaves < 0.1:
        await exchange(at, data[: draw.randrange(len(data))], 0.0)
        seen.ends["left while asking"] += 1
        return
    if leaves < 0.3:
        await exchange(at, data, draw.choice([0.0, 0.005, 0.05, 0.3]))
        seen.ends["left while answered"] += 1
        return
    answer = await exchange(at, data) or b""
    code = status(answer)
    seen.ends[str(code)] += 1
    if code == 429:
        await asyncio.sleep(0.1)  # long before Retry-After: there are bursts
    whole = b"data: [DONE]" in answer if body["stream"] else b'"usage"' in answer
    if code not in FINE or (code == 200 and (not whole or b'"error"' in answer)):
        seen.wrong.append(f"{body} gave {answer[:300]!r}")


async def soak(
    at: Address, model: str, requests: int, clients: int, tokens: int, seed: int
) -> Seen:
    """Clients pause now and then, all at once: what comes after is a burst."""
    seen, left = Seen(), iter(range(requests))

    async def client(number: int) -> None:
        draw = random.Random(seed * 1000 + number)
        for k in left:
            await one(at, draw, model, tokens, seen)
            if k % 100 < clients // 2:
                await asyncio.sleep(0.05)

    await asyncio.gather(*(client(n) for n in range(clients)))
    return seen


# ---- nonsense ----------------------------------------------------------------------------------


def nonsense(draw: random.Random, model: str) -> bytes:
    """The bytes of a request with something wrong, or only odd, in it."""
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


async def fuzz(at: Address, model: str, count: int, seed: int, wait_s: float = 0.2) -> Seen:
    """After each a request that makes sense is answered. A server may hang up on what is no HTTP,
    and wait for a body that does not come: then we leave after a while."""
    draw, seen = random.Random(seed), Seen()
    good = post("/v1/completions", json.dumps(
        {"model": model, "prompt": [5], "max_tokens": 1, "ignore_eos": True}).encode())
    for _ in range(count):
        data = nonsense(draw, model)
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


# ---- what is left ------------------------------------------------------------------------------


async def metrics(at: Address) -> dict[str, float]:
    text = await exchange(at, b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    pairs = re.findall(rb"^eventtensor:(\w+)\{[^}]*\} (\S+)$", text or b"", re.MULTILINE)
    return {name.decode(): float(value) for name, value in pairs}


async def at_rest(at: Address, patience_s: float = 30.0) -> bool:
    """Whether nobody is asked any more and no page is used."""
    names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        found = await metrics(at)
        if not any(found[n] for n in names):
            return True
        await asyncio.sleep(0.1)
    return False


def resident_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", text)[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="random:tiny-llama")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=60)
    parser.add_argument("--fuzz", type=int, default=5000)
    parser.add_argument("--out", type=Path)
    words = parser.parse_args()
    options = ["--target", words.target, "--context", "512", "--max-running", "16",
               "--max-waiting", "24", "--cache-gb", "0.02", "--name", "m"]
    with server(words.model, options) as at:
        found = [asyncio.run(soak(at, "m", words.requests // 4, words.clients, words.tokens, 0))]
        before = resident_mb(at.pid)
        found.append(asyncio.run(soak(at, "m", words.requests, words.clients, words.tokens, 1)))
        found.append(asyncio.run(fuzz(at, "m", words.fuzz, 2)))
        rest, after = asyncio.run(at_rest(at)), resident_mb(at.pid)
    row = {"name": "soak", "model": words.model, "ends": [dict(s.ends) for s in found],
           "wrong": [w for s in found for w in s.wrong], "at_rest": rest,
           "resident_mb": [round(before, 1), round(after, 1)]}
    print(json.dumps(row, indent=1))
    if words.out is not None:
        words.out.write_text(json.dumps([row], indent=1) + "\n")
    sys.exit(bool(row["wrong"]) or not rest or after > 1.1 * before + 20)


if __name__ == "__main__":
    main()
