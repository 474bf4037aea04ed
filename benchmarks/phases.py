"""Where the time of a decode step goes: microseconds of each phase of a layer, from the trace of a
step, beside what its bytes would take. A phase lasts from the end of the one before until its last
task has ended, so that those of a layer add up; a traced step is 1-2% slower than one without.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

import eventtensor as et
from benchmarks.decoder import Cache, Model, Steps
from benchmarks.kernels import Wanted, for_requests
from benchmarks.measure import Bench, main, torch
from benchmarks.read_bandwidth import measure_read
from eventtensor.llm.model.model_config import ModelConfig
from eventtensor.llm.model.model_presets import PRESETS
from eventtensor.llm.model.packed_layout import matrices, packed_shapes

CASES = (
    ("llama-3.2-1b", (1, 16, 64), 1024),
    ("qwen3-0.6b", (1,), 960),
    ("qwen3-8b", (1, 8, 16, 64), 1024),
    ("qwen3-30b-a3b", (1, 8, 16, 64), 1024),
)
MATRICES = {"qkv_proj": "w_qkv", "out_proj": "w_o", "gate_up": "w_gate_up", "down_proj": "w_down",
            "router": "w_router", "experts_gate_up": "w_gate_up", "experts_down": "w_down"}
EDGE = 2  # layers at both ends that are left out: they have other neighbours


@dataclass(frozen=True)
class Layers:
    """The tasks of a traced step that belong to layers, by call in the order of the program."""

    calls: dict[str, np.ndarray]  # records
    count: int

    @staticmethod
    def of(kernel: Any, layers: int) -> Layers:
        found = kernel.backend.traced()
        if found.lost:
            raise RuntimeError(f"the trace has lost {found.lost} tasks")
        records, known = found.records, kernel.backend.image.interface.calls
        own = {
            c.name: records[records["call"] == k]
            for k, c in enumerate(known)
            if c.vars and c.vars[0] == "l"
        }
        return Layers({name: r for name, r in own.items() if len(r)}, layers)

    def phases(self) -> Iterator[tuple[str, list[float], list[float], list[float]]]:
        """For each call what it adds to a layer, what its tasks take, and how long they stand still
        for want of pages of the stream, in microseconds."""
        ends = {name: [self._in(r, k)["t_end"].max() for k in range(self.count)]
                for name, r in self.calls.items()}
        names, inner = list(ends), range(EDGE, self.count - EDGE)
        for before, name in zip([names[-1], *names], names, strict=False):
            back = 1 if name == names[0] else 0
            took = [(int(ends[name][k]) - int(ends[before][k - back])) / 1e3 for k in inner]
            r = self.calls[name]
            tasks, stalls = (r["t_end"] - r["t_ready"]) / 1e3, r["stalled"] / 1e3
            yield name, took, tasks.tolist(), stalls.tolist()

    @staticmethod
    def _in(records: np.ndarray, layer: int) -> np.ndarray:
        return records[records["coords"][:, 0] == layer]


def bytes_of(c: ModelConfig, phase: str, batch: int, context: int, used: float) -> float:
    """That a phase of one layer must read; of experts those of so many."""
    if phase == "attend":
        return 4.0 * batch * (context + 1) * c.kv_heads * c.head_dim
    if phase not in MATRICES:
        return 0.0
    name = MATRICES[phase]
    m = matrices(c)[name]
    if m.of == "expert":
        return 2.0 * used * m.rows * m.columns
    return 2.0 * prod(packed_shapes(c, "cuda")[name]) / c.layers


def measure_case(
    bench: Bench, kernel: Any, model: Model, batch: int, context: int, about: Mapping[str, Any]
) -> None:
    c, gbs = model.config, float(about["read_gbs"])
    arguments = Cache(model, batch, context).decode()
    Steps(kernel, [arguments]).check(3)
    used = 0.0 if c.experts is None else float(arguments["active"].float().mean())
    for phase, took, tasks, stalls in Layers.of(kernel, c.layers).phases():
        floor = bytes_of(c, phase, batch, context, used) / gbs / 1e3
        bench.add("phase", took, "us", **about, phase=phase, floor=round(floor, 2),
                  task_us=round(float(np.median(tasks)), 2), tasks=len(tasks) // c.layers,
                  stalled_us=round(float(np.median(stalls)), 2))


def measure(bench: Bench) -> None:
    gbs, _ = measure_read(bench)
    wanted = dict.fromkeys(for_requests(m, b) for m, all_b, _ in CASES for b in all_b)
    with ThreadPoolExecutor(len(wanted)) as pool:
        made = dict(zip(wanted, pool.map(traced, wanted), strict=True))
    for name, batches, context in CASES:
        model = Model(PRESETS[name])
        for batch in batches:
            about = {"model": name, "batch": batch, "context": context, "read_gbs": gbs}
            measure_case(bench, made[for_requests(name, batch)], model, batch, context, about)
        del model
        torch().cuda.empty_cache()


def traced(wanted: Wanted) -> Any:
    return et.compile(wanted.program(), target="cuda", trace=True, **wanted.options())


if __name__ == "__main__":
    main("phases", __doc__, measure)
