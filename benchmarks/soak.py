"""A server under everything that clients do: mixed requests, some cancelled or cut off at any
phase, bursts beyond the queue, and requests that make no sense, made by hand (nonsense.py) and by
schemathesis out of the server's own description (described.py). Run it against a server of the tiny
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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from described import described
from nonsense import fuzz
from talking import Seen, exchange, post, status

from eventtensor.bench.client import Address
from eventtensor.bench.outside import server
from eventtensor.bench.rows import Row, row, write

HERE = Path(__file__).resolve().parent
FINE, REFUSED = {200, 429}, {"400", "401", "404", "405", "413", "422", "429", "503"}


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


def rows(words: argparse.Namespace, found: Sequence[Seen], took: Sequence[float]) -> list[Row]:
    """How long each part took, and what became of its requests."""
    names = ("soak_warm", "soak", "soak_nonsense", "soak_described")
    return [
        row(name, [seconds], "s", model=words.model, target=words.target,
            requests=sum(s.ends.values()), clients=words.clients if k < 2 else 1,
            whole=s.ends["200"], refused=sum(n for e, n in s.ends.items() if e in REFUSED),
            left=s.ends["left while asking"] + s.ends["left while answered"],
            wrong=len(s.wrong), ends=dict(s.ends))
        for k, (name, s, seconds) in enumerate(zip(names, found, took, strict=True))
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="random:tiny-llama")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=60)
    parser.add_argument("--fuzz", type=int, default=5000)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "soak.json")
    words = parser.parse_args()
    options = ["--target", words.target, "--context", "512", "--max-running", "16",
               "--max-waiting", "24", "--cache-gb", "0.02", "--name", "m"]
    found, took = list[Seen](), list[float]()

    def timed(work: Callable[[], Seen]) -> None:
        began = time.perf_counter()
        found.append(work())
        took.append(time.perf_counter() - began)

    with server(words.model, options) as at:
        load = words.clients, words.tokens
        timed(lambda: asyncio.run(soak(at, "m", words.requests // 4, *load, 0)))
        before = resident_mb(at.pid)
        timed(lambda: asyncio.run(soak(at, "m", words.requests, *load, 1)))
        timed(lambda: asyncio.run(fuzz(at, "m", words.fuzz // 2, 2)))
        timed(lambda: described(at, "m", words.fuzz - words.fuzz // 2))
        rest, after = asyncio.run(at_rest(at)), resident_mb(at.pid)
    wrong = [w for s in found for w in s.wrong]
    print("\n".join(wrong))
    write([*rows(words, found, took),
           row("soak_resident", [after], "MB", model=words.model, before=round(before, 1),
               at_rest=rest)], words.out)
    print(words.out.read_text())
    sys.exit(bool(wrong) or not rest or after > 1.1 * before + 20)


if __name__ == "__main__":
    main()
