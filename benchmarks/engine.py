"""The overhead of the engine over its kernel, in one process and behind HTTP: the time of its
steps, the gaps between them and the time per output token, beside bare launches with the same rows.

Prefill steps have more rows than decode steps. So the bare time is a mean over the shapes of steps
that occurred: each shape is measured again alone, and weighted by the tokens that came out of it.

    python benchmarks/engine.py --model random:llama-3.2-1b --target cuda --batch 1 8 32 64
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

from benchmarks.in_process_server import run_clients, serve_in_process
from benchmarks.step_times import BareSteps, Launch, LaunchLog
from eventtensor import LLM, SamplingParams
from eventtensor.llm.bench.in_process import Workload, measure_latency
from eventtensor.llm.bench.results import Row, make_row, random_prompts, write_rows
from eventtensor.llm.bench.startup import measure_startup
from eventtensor.llm.runner.runner_memory import DeviceMemory
from eventtensor.llm.runner.target_name import find_target

HERE = Path(__file__).resolve().parent
Pairs = list[tuple[Launch, Launch]]  # that followed each other
SIZES = (1, 8, 16, 32, 48, 64, 96, 128)  # rows of bare steps of which one gets a token


class EngineBench:
    """An engine under measurement. It is idle while bare steps use its runner."""

    def __init__(self, llm: LLM, workload: Workload) -> None:
        self.llm, self.workload, self.log = llm, workload, LaunchLog(llm.engine.runner)
        self.bare = BareSteps(llm.engine.runner, workload, self.log)
        self.facts = {"target": llm.target, "input": workload.input_tokens,
                      "output": workload.output_tokens}

    def measure_beside_bare(self, work: Callable[[], list[Row]]) -> tuple[list[Row], Pairs]:
        """The rows of `work`, with the mean time per token beside the mean of bare steps of the
        same shapes, weighted by the tokens that came out of each."""
        stats = self.llm.engine.stats
        before = Counter(stats.later_tokens_of_shape)
        steps, rows = stats.num_steps, stats.num_step_tokens
        self.log.begin()
        found, gaps = work(), self.log.pairs()
        mean, part = self.bare.mean(stats.later_tokens_of_shape - before)
        (tpot,) = (r for r in found if r["name"].endswith("_tpot"))
        steps, rows = stats.num_steps - steps, stats.num_step_tokens - rows
        tpot |= {"bare_step": round(mean, 4), "percent_more": percent(tpot["mean"], mean),
                 "measured_part": round(part, 3),
                 "rows_a_step": round(rows / steps, 1)}
        return found, gaps

    def step_rows(self, name: str, seen: Pairs, **facts: object) -> list[Row]:
        """The steps that occurred: all of them, and those that only decode."""
        pairs = [(a, b, b.rows) for a, b in seen if b.rows is not None]
        found = []
        for what, some in (("steps", pairs), ("decoding", [p for p in pairs if p[2][1] == 0])):
            times = [b.ended - a.ended for a, b, _ in some]
            one = make_row(f"{name}_{what}", times, "ms", **facts)
            if times:
                mean, _ = self.bare.mean(Counter(rows for *_, rows in some))
                one |= {"bare_step": round(mean, 4), "percent_more": percent(one["mean"], mean)}
            found.append(one)
        return found

    def measure_in_process(self, batch: int, runs: int, launch: str = "dependent") -> list[Row]:
        """`batch` requests at a time, in this process."""
        facts = self.facts | {"model": self.llm.model.name, "batch": batch}
        rows, seen = self.measure_beside_bare(
            lambda: measure_latency(self.llm, self.workload, batch, runs, warm=0))
        decoding = [(a, b) for a, b in seen if a.rows == b.rows == (batch, 0)]
        rows += [make_row("engine_gap", [1e3 * (b.began - a.ended) for a, b in decoding], "us",
                     **facts, launch=launch),
                 make_row("engine_kernel", [b.ended - b.began for _, b in decoding], "ms", **facts),
                 make_row("engine_step", [b.ended - a.ended for a, b in decoding], "ms", **facts,
                     launch=launch)]
        bare = make_row("engine_bare_step", self.bare.times((batch, 0)), "ms", **facts)
        if decoding:
            rows[-1]["percent_more"] = percent(rows[-1]["median"], bare["median"])
        return [*rows, bare]

    def measure_over_http(self, url: str, clients: int, each: int) -> list[Row]:
        facts = self.facts | {"model": self.llm.model.name, "clients": clients}
        rows, seen = self.measure_beside_bare(
            lambda: run_clients(url, clients, self.workload, each))
        rows = [r for r in rows if r["name"] != "serve_itl"]
        return rows + self.step_rows("serve", seen, **facts)

    def measure_sizes(self) -> list[Row]:
        """The time of bare steps with so many tokens of a prompt."""
        return [make_row("engine_rows", self.bare.times((1, n - 1)), "ms", **self.facts,
                         model=self.llm.model.name, rows=n) for n in SIZES]

    def measure_plain_launches(self) -> list[Row]:
        """The gap between plain launches, which must give the same tokens."""
        memory = self.llm.engine.runner.memory
        assert isinstance(memory, DeviceMemory)
        before = self._answers()
        memory.dependent = False
        assert self._answers() == before, "dependent launches give other tokens"
        rows = [r for r in self.measure_in_process(1, 1, "plain")
                if r["name"] in ("engine_gap", "engine_step")]
        memory.dependent = True
        self.bare.times_of_rows.clear()
        return rows

    def _answers(self) -> list[object]:
        """Of three requests, then of one alone."""
        params = SamplingParams(temperature=0.8, seed=5, max_tokens=40, ignore_eos=True)
        texts = random_prompts(3, 40, 256, seed=9)
        return [c.tokens for some in (texts, texts[:1]) for c in self.llm.generate(some, params)]


def percent(value: float, base: float) -> float:
    return round(100 * (value / base - 1), 1)


def print_rows(rows: list[Row]) -> None:
    for r in rows:
        if "median" in r:
            beside = [f"{k} {r[k]}" for k in ("launch", "rows", "bare_step", "percent_more",
                                              "measured_part", "rows_a_step") if k in r]
            many = r.get("batch", r.get("clients", ""))
            print(f"{r['model']} {many} {r['name']}: mean {r['mean']} median {r['median']} "
                  f"p90 {r['p90']} {r['unit']} {', '.join(beside)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", nargs="+", default=["random:llama-3.2-1b"])
    parser.add_argument("--target", default="auto")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32, 64])
    parser.add_argument("--input", type=int, default=512)
    parser.add_argument("--output", type=int, default=128)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--requests", type=int, default=3, help="of each client, that count")
    parser.add_argument("--max-prefill-tokens", type=int)
    parser.add_argument("--cache-gb", type=float, default=12.0)
    parser.add_argument("--batch-invariant", action="store_true")
    parser.add_argument("--startup", nargs="*", default=[], help="models to start anew as well")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "engine.json")
    words = parser.parse_args()
    rows: list[Row] = []
    for found in chain(*(measure_model(m, words) for m in words.model),
                       *(measure_starts(m, words) for m in words.startup)):
        rows += [r for r in found if "median" in r]
        write_rows(rows, words.out)
        print_rows(found)


def measure_model(model: str, words: argparse.Namespace) -> Iterator[list[Row]]:
    workload, most = Workload(words.input, words.output), max(words.batch)
    with LLM(model, target=words.target, dtype=words.dtype, cache_gb=words.cache_gb,
             max_model_len=words.input + words.output, max_num_seqs=most,
             max_prefill_tokens=words.max_prefill_tokens,
             batch_invariant=words.batch_invariant) as llm:
        measure_latency(llm, workload, 2, 1, warm=0)
        engine = EngineBench(llm, workload)
        if llm.target == "cuda":
            yield engine.measure_plain_launches()
        for n in words.batch:
            yield engine.measure_in_process(n, words.runs)
        with serve_in_process(llm) as url:
            for n in words.batch:
                yield engine.measure_over_http(url, n, words.requests)
        yield engine.measure_sizes()


def measure_starts(model: str, words: argparse.Namespace) -> Iterator[list[Row]]:
    yield measure_startup(model, {"target": find_target(words.target), "dtype": words.dtype}, 2)


if __name__ == "__main__":
    main()
