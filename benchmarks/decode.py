"""One decode step of a whole model as one kernel, beside its floor (bytes of weights and cache over
the read bandwidth of the same run), PyTorch in a CUDA graph, and torch.compile in one; steps that
draw their tokens; prompts; cold compiles, and artifacts up to the first token.

Rows that a run does not measure stay as they are in the file: for two of them again, say
`--only step --model llama-3.2-1b --batch 1 --no-peers`.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.decode_cases import Case, Chosen, Prompt, parse
from benchmarks.decoder import TEMPERATURE, TOP_P, Cache, Model, Steps, floor_bytes, taken
from benchmarks.kernels import Made, Wanted, make_all, no_caches
from benchmarks.measure import Bench, gpu_us, graph, here, machine, print_heads, torch
from benchmarks.power_monitor import PowerMonitor
from benchmarks.read_bandwidth import measure_read
from benchmarks.result_merge import MergeBench
from benchmarks.torch_compiled import CompiledPeer, Measured, Task
from eventtensor.llm.model.model_presets import PRESETS

STEPS = 5  # in one sample
LOADS = 5  # samples of what takes a second or so
OURS, GRAPH, COMPILE = "eventtensor", "torch graph", "torch.compile"


@dataclass
class Run:
    """What a run has so far: artifacts, what peers took, and the read bandwidth in GB/s."""

    bench: Bench
    chosen: Chosen
    made: dict[Wanted, Made] = field(default_factory=dict)
    peers: dict[Case, dict[str, Measured]] = field(default_factory=dict)
    bandwidth: float = 0.0

    @property
    def repeats(self) -> int:
        """Steps whose bits are compared."""
        return 3 if self.bench.quick else 20

    def floor(self, case: Case) -> float:
        """Milliseconds."""
        return round(floor_bytes(PRESETS[case.model], case.batch, case.context)
                     / self.bandwidth / 1e6, 4)


def freed() -> None:
    """What nobody holds any more goes back to the driver, where kernels take theirs from."""
    gc.collect()
    torch().cuda.empty_cache()


@contextmanager
def reported(bench: Bench, name: str, **fields: Any) -> Iterator[None]:
    """What goes wrong is a row, and the run goes on."""
    try:
        yield
    except Exception as e:
        bench.fail(name, f"{type(e).__name__}: {str(e)[:600]}", **fields)
    freed()


# ---- before the first measurement ------------------------------------------------------------


def compile_cold(run: Run, folder: Path, jobs: int) -> None:
    """A few at a time, each on a core of its own; what they make is used later."""
    wanted = run.chosen.compiled()
    with ThreadPoolExecutor(max(1, min(4, jobs // 2))) as pool:
        found = make_all(wanted, folder / "cold", pool, no_caches(folder / "empty"))
    for w, made in found.items():
        about = {"model": w.model, "tokens": w.tokens}
        if made.error or made.from_cache:
            run.bench.fail("compile", made.error or "the cache was not empty", **about)
        else:
            run.bench.add("compile", [made.seconds], "s", **about)
    run.made |= found


def compile_rest(run: Run, peers: list[CompiledPeer], folder: Path, jobs: int) -> None:
    """Kernels and peers beside each other; peers, which take longer, begin first."""
    left = [w for w in run.chosen.kernels() if w not in run.made]
    with ThreadPoolExecutor(max(1, jobs)) as pool:
        started = [pool.submit(p.start) for p in peers]
        run.made |= make_all(left, folder / "warm", pool)
        for s in started:
            s.result()


def compiled_peers(run: Run, args: argparse.Namespace) -> dict[Case, CompiledPeer]:
    return {
        c: CompiledPeer(Task(
            c.model, c.batch, c.context, TEMPERATURE if c.sampled else 0.0,
            TOP_P if c.sampled else 1.0, run.bench.samples, STEPS, args.peer_limit,
            args.tune_peers and c.batch == 1,
        ))
        for c in (() if args.no_peers else run.chosen.cases())
    }


def prepare(run: Run, args: argparse.Namespace, folder: Path) -> None:
    """Compiles everything; then those peers are measured and gone that hold weights of their
    own."""
    compile_cold(run, folder, args.jobs)
    peers = compiled_peers(run, args)
    try:
        compile_rest(run, list(peers.values()), folder, args.jobs)
        if run.chosen.cases():
            run.bandwidth, _ = measure_read(run.bench)
            freed()
        for case, peer in peers.items():
            run.peers[case] = {COMPILE: peer.measure()}
            peer.close()
    finally:
        for peer in peers.values():
            peer.close()


# ---- a model ---------------------------------------------------------------------------------


def graph_peers(run: Run, model: str) -> None:
    """PyTorch in a CUDA graph, all sizes with the same weights."""
    from benchmarks.torch_decode import TorchDecoder, TorchWeights

    weights = TorchWeights(PRESETS[model])
    for case in (c for c in run.peers if c.model == model):
        options = (TEMPERATURE, TOP_P) if case.sampled else ()
        try:
            with torch().no_grad():
                peer = TorchDecoder(weights, case.batch, case.context, *options)
                us = gpu_us(graph(peer.step, STEPS), run.bench.samples, STEPS)
            found = Measured(tuple(u / 1e3 for u in us))
        except RuntimeError as e:
            found = Measured(refused=str(e)[:400])
        run.peers[case] = {GRAPH: found, **run.peers[case]}


def add_peers(run: Run, case: Case) -> dict[str, float | str]:
    """A row for each; and what stands beside ours."""
    told: dict[str, float | str] = {}
    for engine, found in run.peers.get(case, {}).items():
        about = {**case.fields(), "engine": engine, "floor": run.floor(case)}
        if found.refused:
            run.bench.refuse(case.part, found.refused, **about)
            told[engine] = f"refused: {found.refused}"
            continue
        more = {"compile_s": round(found.compile_s, 1)} if found.compile_s else {}
        told[engine] = run.bench.add(case.part, found.ms, "ms", **about, **more,
                                     percent=percent(run, case, found.ms))["median"]
    return told


def percent(run: Run, case: Case, ms: tuple[float, ...]) -> float:
    return round(100 * run.floor(case) / statistics.median(ms), 1)


def measure_case(run: Run, case: Case, model: Model) -> None:
    peers = add_peers(run, case)
    for wanted in run.chosen.kernels_of(case):
        about = {**case.fields(), "tokens": wanted.tokens, "engine": OURS}
        with reported(run.bench, case.part, **about):
            measure_kernel(run, case, wanted, model, {**about, "peers": peers})


def measure_kernel(
    run: Run, case: Case, wanted: Wanted, model: Model, about: dict[str, Any]
) -> None:
    arguments = Cache(model, case.batch, case.context + 1).decode(case.sampled)
    with closing(Steps(run.made[wanted].load(), [arguments])) as steps:
        steps.check(run.repeats)
        with PowerMonitor() as seen:
            ms = steps.ms(run.bench.samples, each=STEPS)
        run.bench.add(case.part, ms, "ms", **about, **case.limits(), floor=run.floor(case),
                      percent=percent(run, case, ms), workspace_bytes=steps.workspace_bytes(),
                      **seen.fields())


def measure_prompt(run: Run, prompt: Prompt, model: Model) -> None:
    """With and without the step after it."""
    for wanted in run.chosen.kernels_of_prompt(prompt):
        for part, more in (("prompt", 0), ("prompt + 1", 1)):
            about = {"model": prompt.model, "batch": 1, "prompt": prompt.length,
                     "tokens": wanted.tokens, "part": part, "vllm_ms": prompt.vllm_ms}
            with reported(run.bench, "prefill", **about):
                measure_chunks(run, prompt.length, more, wanted, model, about)


def measure_chunks(
    run: Run, length: int, more: int, wanted: Wanted, model: Model, about: dict[str, Any]
) -> None:
    cache = Cache(model, 1, length + 1)
    arguments = cache.prompt(length, wanted.tokens)
    arguments += [cache.after(arguments[-1], length)] * more
    with closing(Steps(run.made[wanted].load(), arguments)) as steps:
        steps.check(3)
        run.bench.add("prefill", steps.ms(run.bench.samples), "ms", **about,
                      steps=len(arguments), workspace_bytes=steps.workspace_bytes())


def measure_load(run: Run, wanted: Wanted, model: Model) -> None:
    """From a folder to a token on the host; the weights are on the device."""
    about = {"model": wanted.model, "tokens": wanted.tokens}
    with reported(run.bench, "first_token", **about):
        arguments = Cache(model, 1, 128).decode()
        found = [first_token(run.made[wanted], arguments) for _ in range(LOADS)]
        run.bench.add("first_token", [all_of_it for _, all_of_it in found], "s", **about,
                      load_s=round(statistics.median(load for load, _ in found), 4))


def first_token(made: Made, arguments: dict[str, Any]) -> tuple[float, float]:
    """Seconds until the kernel is loaded, and until the token is there."""
    torch().cuda.synchronize()
    started = time.perf_counter()
    with closing(made.load()) as kernel:
        loaded = time.perf_counter() - started
        kernel.bind(**taken(kernel, arguments))(here())
        kernel.synchronize()
        arguments["chosen"].tolist()
        return loaded, time.perf_counter() - started


def measure_model(run: Run, name: str) -> None:
    if any(c.model == name for c in run.peers):
        graph_peers(run, name)
        freed()
    model = Model(PRESETS[name])
    for case in run.chosen.cases():
        if case.model == name:
            measure_case(run, case, model)
    for prompt in run.chosen.prompts():
        if prompt.model == name:
            measure_prompt(run, prompt, model)
    for wanted in run.chosen.loaded():
        if wanted.model == name:
            measure_load(run, wanted, model)


def measure(bench: Bench, args: argparse.Namespace) -> None:
    run = Run(bench, args.chosen)
    with tempfile.TemporaryDirectory() as folder:
        prepare(run, args, Path(folder))
        for name in args.chosen.models_of_all():
            measure_model(run, name)
            freed()


def main() -> None:
    args = parse(None, __doc__)
    t = torch()
    versions = {"torch": t.__version__, "cuda": str(t.version.cuda)}
    bench = MergeBench("decode", args.out, args.quick, machine(**versions))
    print(f"{bench.context['gpu']}, {bench.context['versions']}")
    print_heads()
    started = time.perf_counter()
    measure(bench, args)
    print(f"decode: {time.perf_counter() - started:.1f} s")
    sys.exit(any("error" in row for row in bench.rows))


if __name__ == "__main__":
    main()
