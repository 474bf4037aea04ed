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

from benchmarks.fuzz_requests import fuzz
from benchmarks.http_client import Outcomes, exchange, post, retry_after, status
from benchmarks.openapi_fuzz import fuzz_openapi
from eventtensor.llm.bench.completion_client import Address
from eventtensor.llm.bench.http_load import run_server
from eventtensor.llm.bench.results import Row, make_row, write_rows

HERE = Path(__file__).resolve().parent
BETWEEN_BURSTS = 125  # requests
FLAT, FUZZ_FLAT = 1.05, 1.1  # most memory at the end, of that after the warm-up
ROUNDS = 4  # of the soak; after each the server is idle, and its memory is read
FINE, REFUSED = {200, 429}, {"400", "401", "404", "405", "413", "422", "429", "503"}


# ---- soak --------------------------------------------------------------------------------------


def random_request(draw: random.Random, model: str, tokens: int) -> dict[str, Any]:
    """A well-formed request."""
    length = draw.choice([1, 5, 12, 40]) if draw.random() < 0.95 else 180
    prompt = [draw.randrange(3, 250) for _ in range(length)]
    if draw.random() < 0.3:
        prompt = [7] * draw.choice([129, 140])  # begins that are shared
    extra = draw.choice([{}, {}, {"temperature": 0}, {"logprobs": 2}, {"min_p": 0.1},
                         {"frequency_penalty": 0.5}, {"n": 2}, {"top_k": 9, "top_p": 0.8}])
    return {"model": model, "prompt": prompt, "max_tokens": draw.randint(1, tokens),
            "ignore_eos": True, "seed": draw.randrange(99), "stream": draw.random() < 0.5, **extra}


async def run_request(
    at: Address, draw: random.Random, model: str, tokens: int, seen: Outcomes, is_patient: bool
) -> None:
    """Runs a request to its end; often its client leaves early. A patient client retries a refused
    request when the server says so."""
    body = random_request(draw, model, tokens)
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
    while is_patient and status(answer) == 429:
        seen.num_retries += 1
        await asyncio.sleep(retry_after(answer) * draw.uniform(1.0, 2.0))
        answer = await exchange(at, data) or b""
    code = status(answer)
    seen.ends[str(code)] += 1
    whole = b"data: [DONE]" in answer if body["stream"] else b'"usage"' in answer
    if code not in FINE or (code == 200 and (not whole or b'"error"' in answer)):
        seen.wrong.append(f"{body} gave {answer[:300]!r}")


async def soak(
    at: Address, model: str, requests: int, clients: int, tokens: int, seed: int
) -> Outcomes:
    """Each client sends one request after the other. Now and then one of them sends a burst that
    the queue cannot hold, and does not retry."""
    seen, left = Outcomes(), iter(range(requests))

    async def client(number: int) -> None:
        draw = random.Random(seed * 1000 + number)
        for k in left:
            if k % BETWEEN_BURSTS != BETWEEN_BURSTS - 1:
                await run_request(at, draw, model, tokens, seen, is_patient=True)
                continue
            more = [k, *islice(left, clients // 2)]
            await asyncio.gather(*(
                run_request(at, random.Random(seed * 1000 + m), model, tokens, seen,
                            is_patient=False) for m in more))

    await asyncio.gather(*(client(n) for n in range(clients)))
    return seen


# ---- what is left ------------------------------------------------------------------------------


async def metrics(at: Address) -> dict[str, float]:
    head = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    text = await exchange(at, head)
    pairs = re.findall(rb"^eventtensor:(\w+)\{[^}]*\} (\S+)$", text or b"", re.MULTILINE)
    return {name.decode(): float(value) for name, value in pairs}


async def wait_until_idle(at: Address, patience_s: float = 30.0) -> bool:
    """Waits until no request is open and no KV block is used; False if that takes too long."""
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
class SoakRun:
    """The parts of a soak test, one after the other: the seconds of each, the outcomes of its
    requests, and the memory of the idle server after it."""

    at: Address
    parts: list[tuple[str, Outcomes, float]] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    was_idle: bool = True

    def run(self, name: str, work: Callable[[], Outcomes]) -> None:
        began = time.perf_counter()
        seen = work()
        self.parts.append((name, seen, time.perf_counter() - began))
        self.was_idle = asyncio.run(wait_until_idle(self.at)) and self.was_idle
        self.memory.append(round(resident_mb(self.at.pid), 1))
        print(f"{name}: {dict(seen.ends)}, asked again {seen.num_retries} times, "
              f"{self.parts[-1][2]:.1f} s, {self.memory[-1]} MB", flush=True)

    @property
    def wrong(self) -> list[str]:
        return [w for _, seen, _ in self.parts for w in seen.wrong]

    def rows(self, **facts: Any) -> list[Row]:
        """A row for each name; parts of the same name are added."""
        found: dict[str, tuple[Outcomes, float]] = {}
        for name, seen, seconds in self.parts:
            so_far, took = found.get(name, (Outcomes(), 0.0))
            found[name] = so_far.merge(seen), took + seconds
        return [
            make_row(
                name, [seconds], "s", **facts, requests=sum(s.ends.values()), whole=s.ends["200"],
                refused=sum(n for e, n in s.ends.items() if e in REFUSED),
                asked_again=s.num_retries,
                left=s.ends["left while asking"] + s.ends["left while answered"],
                wrong=len(s.wrong), ends=dict(s.ends))
            for name, (s, seconds) in found.items()
        ]


def run_soak(at: Address, words: argparse.Namespace) -> SoakRun:
    """The first round warms up, so that all caches are full."""
    done, each, load = SoakRun(at), words.requests // ROUNDS, (words.clients, words.tokens)
    done.run("soak_warm", lambda: asyncio.run(soak(at, "m", each, *load, 0)))
    for k in range(ROUNDS):
        done.run("soak", lambda k=k: asyncio.run(soak(at, "m", each, *load, 1 + k)))
    return done


def run_fuzz(at: Address, words: argparse.Namespace) -> SoakRun:
    """The first fifth warms up, because the engine caches compiled grammars."""
    done, hand, made = SoakRun(at), words.fuzz // 2, words.fuzz - words.fuzz // 2
    for part, seed, end in ((5, 2, "_warm"), (1, 20, "")):
        done.run(f"soak_nonsense{end}", lambda p=part, s=seed: asyncio.run(
            fuzz(at, "m", hand // p, s)))
        done.run(f"soak_described{end}", lambda p=part, s=seed: fuzz_openapi(at, "m", made // p, s))
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="random:tiny-llama")
    parser.add_argument("--fuzz-model", help="for malformed requests; --model by default")
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
    fuzz_model = words.fuzz_model or words.model
    for name, work, model, flat in (("soaked", run_soak, words.model, FLAT),
                                    ("fuzzed", run_fuzz, fuzz_model, FUZZ_FLAT)):
        with run_server(model, options) as at:
            done = work(at, words)
        facts = {"model": Path(model).name, "target": words.target}
        warm = sum(part.endswith("_warm") for part, _, _ in done.parts)
        before, after = done.memory[warm - 1], done.memory[warm:]
        rows += [*done.rows(**facts, clients=words.clients if work is run_soak else 1), make_row(
            f"{name}_resident", after, "MB", **facts, before=before,
            each=", ".join(map(str, after)), at_rest=done.was_idle)]
        write_rows(rows, words.out)
        print("\n".join(done.wrong), flush=True)
        fine = fine and not done.wrong and done.was_idle and after[-1] <= flat * before
    sys.exit(not fine)


if __name__ == "__main__":
    main()
