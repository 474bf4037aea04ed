"""Models with experts: a decode step of Qwen3-30B-A3B as one kernel, beside its floor (the bytes
that the routing drawn makes it read, over the read bandwidth of the same run) and PyTorch in a CUDA
graph; layers of experts alone beside Triton; their schedules compared.

Each part is a process of its own, so that one that fails takes nothing from the others. Rows that a
run does not measure stay as they are in the file: `--only decode --batch 1 --no-peers`, say.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.decode import GRAPH, OURS, STEPS, freed, reported
from benchmarks.decoder import Cache, Model, Steps, floor_bytes, weight_bytes
from benchmarks.kernels import Made, Wanted, for_requests, make_all
from benchmarks.measure import RESULTS, Bench, gpu_us, graph, machine, print_heads, torch
from benchmarks.moe_chain import MODEL, SPREAD, compiled_chains, measure_chains
from benchmarks.power_monitor import PowerMonitor
from benchmarks.read_bandwidth import measure_read
from benchmarks.result_merge import MergeBench
from eventtensor.llm.model.model_presets import PRESETS

PARTS = ("decode", "chain", "schedules")
CONTEXT, SEED = 1024, 1
SOME = 8  # layers by which the peer finds its tiles
SECONDS = 280  # that a part may take
# Milliseconds of a step, or times the floor.
LIMITS = {1: (2.0, 1.6), 8: (1.3, 1.12), 16: (1.3, 1.12), 64: (1.3, 1.12)}
SHALLOW, DIFFERENT = 4, 0.2  # layers, and of the norm of their logits: 1.4 for other tokens


@dataclass(frozen=True)
class Case:
    batch: int

    @property
    def wanted(self) -> Wanted:
        return for_requests(MODEL, self.batch)

    def fields(self) -> dict[str, Any]:
        return {"model": MODEL, "batch": self.batch, "context": CONTEXT}

    def limits(self, floor: float) -> dict[str, float]:
        times = 1.0 if self.batch == 1 else floor
        must, aim = LIMITS[self.batch]
        return {"must": round(must * times, 3), "aim": round(aim * times, 3)}


# ---- a whole model -----------------------------------------------------------------------------


@dataclass
class Drawn:
    """What the routing of a step makes it read, by the read bandwidth (GB/s) of this run."""

    case: Case
    used: int  # experts, all layers together
    bandwidth: float

    @property
    def floor(self) -> float:
        """Milliseconds."""
        size = floor_bytes(PRESETS[MODEL], self.case.batch, CONTEXT, self.used)
        return round(size / self.bandwidth / 1e6, 4)

    def told(self, ms: Sequence[float]) -> dict[str, Any]:
        return {"floor": self.floor, "percent": round(100 * self.floor / statistics.median(ms), 1),
                "experts": round(self.used / PRESETS[MODEL].layers, 2),
                "weight_bytes": weight_bytes(PRESETS[MODEL], self.used)}


@dataclass
class Measured:
    """A case: our row comes first, whatever becomes of the peer; `peers` is filled in later."""

    bench: Bench
    case: Case
    cache: Cache
    bandwidth: float
    peers: dict[str, float] = field(default_factory=dict)
    logits: Any = None

    def ours(self, made: Made, repeats: int) -> None:
        case, arguments = self.case, self.cache.decode()
        about = {**case.fields(), "tokens": case.wanted.tokens, "engine": OURS}
        with (reported(self.bench, "decode", **about),
              closing(Steps(made.load(), [arguments])) as steps):
            steps.check(repeats)
            with PowerMonitor() as seen:
                ms = steps.ms(self.bench.samples, each=STEPS)
            drawn = Drawn(case, int(arguments["active"].sum()), self.bandwidth)
            self.bench.add("decode", ms, "ms", **about, **drawn.told(ms),
                           **case.limits(drawn.floor), repeats=repeats, **seen.fields(),
                           workspace_bytes=steps.workspace_bytes(), peers=self.peers)
            self.logits = arguments["logits"]

    def peer(self) -> None:
        about = {**self.case.fields(), "engine": GRAPH}
        with reported(self.bench, "decode", **about):
            ms, used, more = measure_peer(self.case, self.cache, self.logits, self.bench.samples)
            self.peers[GRAPH] = float(f"{statistics.median(ms):.6g}")
            self.bench.add("decode", ms, "ms", **about, **more,
                           **Drawn(self.case, used, self.bandwidth).told(ms))


def measure_peer(
    case: Case, cache: Cache, logits: Any, samples: int
) -> tuple[list[float], int, dict[str, Any]]:
    """PyTorch on the same weights, keys and values, with the experts of moe_triton.py, whose first
    layers must be like those of plain PyTorch. Milliseconds, experts used, and what else is worth
    telling; `apart`: all layers from ours. (What noise decides grows from layer to layer.)"""
    from benchmarks.moe_torch import ExpertDecoder, apart, as_rows, eager
    from benchmarks.moe_triton import Experts, Tile, fastest

    c = PRESETS[MODEL]
    assert c.experts is not None
    experts = Experts(case.batch, c.experts.count, c.experts.top, c.hidden, c.intermediate,
                      c.experts.normed, cache.model.device)
    with as_rows(cache.model.arrays, c) as plain, torch().no_grad():
        peer = ExpertDecoder(plain, cache, lambda *given: experts(*given, Tile()))
        error = peer.shallow(SHALLOW, eager(c))
        if not error <= DIFFERENT:
            raise RuntimeError(f"logits of {SHALLOW} layers are {error} of their norm off")
        from_ours = None if logits is None else round(apart(logits, peer.logits()), 4)
        used = peer_experts(peer, experts)
        some = list(zip(plain["w_gate_up"][:SOME], plain["w_down"][:SOME], strict=True))
        tile = fastest(experts, peer.weights.embed[: case.batch], some,
                       lambda run: statistics.median(gpu_us(graph(run, 1), 5, 1)))
        peer.apply = lambda *given: experts(*given, tile)
        us = gpu_us(graph(peer.step, STEPS), samples, STEPS)
    return [u / 1e3 for u in us], used, {"apart": from_ours, "tile": str(tile)}


def peer_experts(peer: Any, experts: Any) -> int:
    """Those that a step of the peer uses."""
    found, apply = [0], peer.apply

    def counted(*given: Any) -> Any:
        made = apply(*given)
        found[0] += int((experts.counts > 0).sum())
        return made

    peer.apply = counted
    peer.logits()
    peer.apply = apply
    return found[0]


def measure_decode(bench: Bench, made: dict[Any, Made], bandwidth: float,
                   args: argparse.Namespace) -> None:
    started = time.perf_counter()
    torch().manual_seed(SEED)
    model = Model(PRESETS[MODEL])
    model.arrays["w_router"].mul_(SPREAD)
    print(f"weights in {time.perf_counter() - started:.1f} s", flush=True)
    for case in cases(args):
        measured = Measured(bench, case, Cache(model, case.batch, CONTEXT + 1), bandwidth)
        measured.ours(made[case.wanted], args.repeats)
        if not args.no_peers:
            measured.peer()
        del measured  # and with it the cache
        freed()


# ---- a run -------------------------------------------------------------------------------------


def cases(args: argparse.Namespace) -> list[Case]:
    found = [Case(b) for b in LIMITS if not args.batch or b in args.batch]
    return found[:1] if args.quick and not args.batch else found


def compile_all(args: argparse.Namespace, parts: Sequence[str], folder: Path) -> dict[Any, Made]:
    wanted: list[Any] = [c.wanted for c in cases(args)] if "decode" in parts else []
    with ThreadPoolExecutor(max(1, args.jobs)) as pool:
        return make_all([*wanted, *compiled_chains(parts)], folder, pool)


def measure(bench: Bench, args: argparse.Namespace) -> None:
    parts = tuple(args.only or PARTS)
    with tempfile.TemporaryDirectory() as folder:
        made = compile_all(args, parts, Path(folder))
        bandwidth, _ = measure_read(bench)
        freed()
        if "decode" in parts:
            measure_decode(bench, made, bandwidth, args)
            freed()
        if {"chain", "schedules"} & set(parts):
            measure_chains(bench, made, bandwidth, parts, not args.no_peers)


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="few samples: does it run at all?")
    add("--out", type=Path, default=RESULTS, help="folder of the JSON files")
    add("--only", action="append", choices=PARTS, help="may be repeated, as the next one")
    add("--batch", action="append", type=int, choices=tuple(LIMITS), help="of decode")
    add("--no-peers", action="store_true", help="nothing of PyTorch and Triton")
    add("--repeats", type=int, default=20, help="steps whose bits are compared")
    add("--jobs", type=int, default=os.cpu_count() or 1, help="compilers at a time")
    return parser.parse_args(words)


def part(name: str, words: Sequence[str]) -> int:
    """One part as a process of its own."""
    command = [sys.executable, str(Path(__file__)), *words, "--only", name]
    try:
        return subprocess.run(command, timeout=SECONDS, check=False).returncode
    except subprocess.TimeoutExpired:
        print(f"{name} takes longer than {SECONDS} s", flush=True)
        return 1


def main() -> None:
    args = parse(None)
    if len(args.only or PARTS) > 1:
        own = [w for k, w in enumerate(sys.argv[1:])
               if w != "--only" and sys.argv[k] != "--only"]
        failed = [name for name in args.only or PARTS if part(name, own) != 0]
        sys.exit(1 if failed else 0)
    t = torch()
    versions = {"torch": t.__version__, "cuda": str(t.version.cuda)}
    bench = MergeBench("moe", args.out, args.quick, machine(**versions))
    print(f"{bench.context['gpu']}, {bench.context['versions']}")
    print_heads()
    started = time.perf_counter()
    measure(bench, args)
    print(f"moe {' '.join(args.only or PARTS)}: {time.perf_counter() - started:.1f} s")
    sys.exit(any("error" in row for row in bench.rows))


if __name__ == "__main__":
    main()
