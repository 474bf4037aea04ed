"""A soak test of a server: mixed requests, cancelled requests and closed connections, bursts beyond
the queue, malformed requests (fuzz_requests.py), and requests that schemathesis derives from the
server's own description (openapi_fuzz.py). The run fails unless every answer is whole or a clear
refusal, all cache blocks come back, and memory stays flat.

    python benchmarks/soak.py --model smollm2 --tokens 10 --fuzz-model random:tiny-llama
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from fuzz_requests import fuzz
from http_client import Seen, exchange, post, retry_after, status
from openapi_fuzz import described

from eventtensor.bench.client import Address
from eventtensor.bench.http_load import server
from eventtensor.bench.results import Row, row, write

HERE = Path(__file__).resolve().parent
BETWEEN_BURSTS = 125  # requests
FLAT, FUZZ_FLAT = 1.05, 1.1  # memory in the end, at most, of what it was after the warm rounds
ROUNDS = 4  # of the soak; after each the server is at rest, and its memory is looked at
FINE, REFUSED = {200, 429}, {"400", "401", "404", "405", "413", "422", "429", "503"}


# ---- soak --------------------------------------------------------------------------------------


def wish(draw: random.Random, model: str, tokens: int) -> dict[str, Any]:
    """Some request that makes sense."""
    length = draw.choice([1, 5, 12, 40]) if draw.random() < 0.95 else 180
    prompt = [draw.randrange(3, 250) for _ in range(length)]
    if draw.random() < 0.3:
        prompt = [7] * draw.choice([129, 140])  # begins that are shared
    extra = draw.choice([{}, {}, {"temperature": 0}, {"logprobs": 2}, {"min_p": 0.1},
                         {"frequency_penalty": 0.5}, {"n": 2}, {"top_k": 9, "top_p": 0.8}])
    return {"model": model, "prompt": prompt, "max_tokens": draw.randint(1, tokens),
            "ignore_eos": True, "seed": draw.randrange(99), "stream": draw.random() < 0.5, **extra}


async def one(
    at: Address, draw: random.Random, model: str, tokens: int, seen: Seen, patient: bool
) -> None:
    """A request to its end, which is often that its client leaves. Who is patient asks again when
    the server says that it may."""
    body = wish(draw, model, tokens)
    data = post("/v1/completions", json.dumps(body).encode())
    leaves = draw.random()
    if leaves < 0.05:
        await exchange(at, data[: draw.randrange(len(data))], 0.0)
        seen.ends["left while asking"] += 1
        return
    if leaves < 0.2:
        await exchange(at, data, draw.choice([0.0, 0.005, 0.05, 0.3, 2.0]))
        seen.ends["left while answered"] += 1
        return
    answer = await exchange(at, data) or b""
    while patient and status(answer) == 429:
        seen.again += 1
        await asyncio.sleep(retry_after(answer) * draw.uniform(1.0, 2.0))
        answer = await exchange(at, data) or b""
    code = status(answer)
    seen.ends[str(code)] += 1
    whole = b"data: [DONE]" in answer if body["stream"] else b'"usage"' in answer
    if code not in FINE or (code == 200 and (not whole or b'"error"' in answer)):
        seen.wrong.append(f"{body} gave {answer[:300]!r}")


async def soak(
    at: Address, model: str, requests: int, clients: int, tokens: int, seed: int
) -> Seen:
    """Clients ask one by one; now and then one of them asks for much at once, which is more than
    the queue holds, and does not ask again."""
    seen, left = Seen(), iter(range(requests))

    async def client(number: int) -> None:
        draw = random.Random(seed * 1000 + number)
        for k in left:
            if k % BETWEEN_BURSTS != BETWEEN_BURSTS - 1:
                await one(at, draw, model, tokens, seen, patient=True)
                continue
            more = [k, *islice(left, clients // 2)]
            await asyncio.gather(*(one(at, random.Random(seed * 1000 + m), model, tokens, seen,
                                       patient=False) for m in more))

    await asyncio.gather(*(client(n) for n in range(clients)))
    return seen


# ---- what is left ------------------------------------------------------------------------------


async def metrics(at: Address) -> dict[str, float]:
    head = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    text = await exchange(at, head)
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


@dataclass
class Course:
    """What was done to a server one after the other: how long each part took, what became of its
    requests, and the memory of the server once it was at rest again."""

    at: Address
    parts: list[tuple[str, Seen, float]] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    at_rest: bool = True

    def run(self, name: str, work: Callable[[], Seen]) -> None:
        began = time.perf_counter()
        seen = work()
        self.parts.append((name, seen, time.perf_counter() - began))
        self.at_rest = asyncio.run(at_rest(self.at)) and self.at_rest
        self.memory.append(round(resident_mb(self.at.pid), 1))
        print(f"{name}: {dict(seen.ends)}, asked again {seen.again} times, "
              f"{self.parts[-1][2]:.1f} s, {self.memory[-1]} MB", flush=True)

    @property
    def wrong(self) -> list[str]:
        return [w for _, seen, _ in self.parts for w in seen.wrong]

    def rows(self, **facts: Any) -> list[Row]:
        """One for each name; parts of the same name are added up."""
        found: dict[str, tuple[Seen, float]] = {}
        for name, seen, seconds in self.parts:
            so_far, took = found.get(name, (Seen(), 0.0))
            found[name] = so_far.plus(seen), took + seconds
        return [
            row(name, [seconds], "s", **facts, requests=sum(s.ends.values()), whole=s.ends["200"],
                refused=sum(n for e, n in s.ends.items() if e in REFUSED), asked_again=s.again,
                left=s.ends["left while asking"] + s.ends["left while answered"],
                wrong=len(s.wrong), ends=dict(s.ends))
            for name, (s, seconds) in found.items()
        ]


def soaked(at: Address, words: argparse.Namespace) -> Course:
    """A warm round first, so that what is kept on purpose is there."""
    done, each, load = Course(at), words.requests // ROUNDS, (words.clients, words.tokens)
    done.run("soak_warm", lambda: asyncio.run(soak(at, "m", each, *load, 0)))
    for k in range(ROUNDS):
        done.run("soak", lambda k=k: asyncio.run(soak(at, "m", each, *load, 1 + k)))
    return done


def fuzzed(at: Address, words: argparse.Namespace) -> Course:
    """The same: a fifth of it is warm. Compiled grammars are kept, up to some number."""
    done, hand, made = Course(at), words.fuzz // 2, words.fuzz - words.fuzz // 2
    for part, seed, end in ((5, 2, "_warm"), (1, 20, "")):
        done.run(f"soak_nonsense{end}", lambda p=part, s=seed: asyncio.run(
            fuzz(at, "m", hand // p, s)))
        done.run(f"soak_described{end}", lambda p=part, s=seed: described(at, "m", made // p, s))
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="random:tiny-llama")
    parser.add_argument("--fuzz-model", help="for nonsense; the same without it")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=60)
    parser.add_argument("--fuzz", type=int, default=5000)
    parser.add_argument("--cache-gb", type=float, default=0.06)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "soak.json")
    words = parser.parse_args()
    options = ["--target", words.target, "--max-model-len", "512", "--max-num-seqs", "16",
               "--max-waiting", str(words.clients), "--cache-gb", str(words.cache_gb),
               "--served-model-name", "m"]
    rows, fine = list[Row](), True
    for work, model, flat in ((soaked, words.model, FLAT),
                              (fuzzed, words.fuzz_model or words.model, FUZZ_FLAT)):
        with server(model, options) as at:
            done = work(at, words)
        facts = {"model": Path(model).name, "target": words.target}
        warm = sum(name.endswith("_warm") for name, _, _ in done.parts)
        before, after = done.memory[warm - 1], done.memory[warm:]
        rows += [*done.rows(**facts, clients=words.clients if work is soaked else 1), row(
            f"{work.__name__}_resident", after, "MB", **facts, before=before,
            each=", ".join(map(str, after)), at_rest=done.at_rest)]
        write(rows, words.out)
        print("\n".join(done.wrong), flush=True)
        fine = fine and not done.wrong and done.at_rest and after[-1] <= flat * before
    sys.exit(not fine)


if __name__ == "__main__":
    main()
