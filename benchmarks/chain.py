"""A chain of dependent matrix-vector products as one kernel, against the read bandwidth measured in
the same run, a graph of kernels that only read, and torch in a graph.

Right first: against float64 with x rounded to bf16 between the layers, and ten equal runs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import eventtensor as et
from benchmarks.measure import Bench, graph_us, here, main, torch
from benchmarks.read_bandwidth import measure_read
from eventtensor.errors import BadOption
from examples.chain import chain, pack

# 32 MB and 8 MB of weights a layer; all of them exceed the L2 several times.
SHAPES = ((4096, 64), (2048, 128))
LAUNCHES = 10  # in one graph


@dataclass(frozen=True)
class Variant:
    rows: int
    stream: bool
    handoff: str = "auto"
    packed: bool = True


VARIANTS = (
    Variant(16, True),
    Variant(32, True),
    Variant(32, True, packed=False),
    Variant(32, False, packed=False),
    Variant(32, True, "counter"),
    Variant(16, True, "tagged"),
    Variant(32, True, "bulk"),
)


# ---- the chain ---------------------------------------------------------------------------------


def make_arrays(width: int, layers: int) -> dict[str, Any]:
    t = torch()
    t.manual_seed(width)
    like = {"dtype": t.bfloat16, "device": "cuda"}
    w = t.empty((layers, width, width), **like)
    return {"first": t.randn(width, **like), "w": w.normal_(0, 1 / math.sqrt(width)),
            "last": t.zeros(width, **like)}


def reference(arrays: dict[str, Any]) -> Any:
    t = torch()
    x = arrays["first"].double()
    for w in arrays["w"]:
        x = t.tanh(w.double() @ x).to(t.bfloat16).double()
    return x


def allowed(layers: int) -> float:
    """Of the norm. Another order of sums flips a bf16 rounding here and there, and what follows
    rounds differently from then on: a random walk of half units in the last place."""
    return float(2**-8 * math.sqrt(layers))


def compiled(width: int, variant: Variant) -> et.Kernel:
    return et.compile(chain(width, variant.rows, variant.packed), target="cuda", schedule="static",
                      stream=variant.stream, handoff=variant.handoff)


def laid_out(arrays: dict[str, Any], packed: bool) -> dict[str, Any]:
    w = arrays["w"]
    return {**arrays, "w": pack(w).contiguous() if packed else w}


def wrong(kernel: et.Kernel, arrays: dict[str, Any], packed: bool, runs: int) -> str:
    """What is wrong with some runs, of one layer and of all, or nothing."""
    for layers in (1, len(arrays["w"])):
        plain = {**arrays, "w": arrays["w"][:layers]}
        given = laid_out(plain, packed)
        wanted, seen, step = reference(plain), set(), kernel.bind(**given)
        for _ in range(runs):
            given["last"].fill_(float("nan"))
            step(here())
            kernel.synchronize()
            got = given["last"].double()
            seen.add(tuple(got.tolist()))
            error = float((got - wanted).norm() / wanted.norm())
            if not error <= allowed(layers):
                return f"{layers} layers: error {error:.2e} of the norm, allowed {allowed(layers)}"
        if len(seen) != 1:
            return f"{layers} layers: {len(seen)} different results in {runs} runs"
    return ""


def measure_variant(
    bench: Bench, variant: Variant, arrays: dict[str, Any], floor: float, peers: dict[str, float]
) -> None:
    layers, width = arrays["w"].shape[:2]
    told = {"width": width, "layers": layers, "megabytes": width * width * 2 >> 20,
            "rows": variant.rows, "handoff": variant.handoff,
            "weights": "packed" if variant.packed else "rows",
            "stream": "stream" if variant.stream else "no stream"}
    try:
        kernel = compiled(width, variant)
    except BadOption as refused:
        bench.refuse("chain", str(refused), **told)
        return
    said = wrong(kernel, arrays, variant.packed, 3 if bench.quick else 10)
    if said:
        bench.fail("chain", said, **told)
    else:
        step = kernel.bind(**laid_out(arrays, variant.packed))
        times = graph_us(lambda: step(here()), bench.samples, LAUNCHES)
        kernel.synchronize()
        middle = statistics.median(times)
        bench.add("chain", times, "us", **told, floor=round(floor, 2), peers=peers,
                  percent=round(100 * floor / middle, 1),
                  us_a_layer_over_floor=round((middle - floor) / layers, 3))
    kernel.close()


def measure_peers(
    bench: Bench, arrays: dict[str, Any], read: Callable[[Any], None], floor: float
) -> dict[str, float]:
    """Medians in us of a graph with a read kernel a layer, and of torch in a graph."""
    t = torch()
    w, first = arrays["w"], arrays["first"]

    def only_read() -> None:
        for k in range(len(w)):
            read(w[k])

    def by_torch() -> None:
        x = first
        for k in range(len(w)):
            x = t.tanh(t.mv(w[k], x))

    found = {}
    for name, enqueue in (("read_kernels", only_read), ("torch", by_torch)):
        times = graph_us(enqueue, bench.samples)
        middle = statistics.median(times)
        found[name] = round(middle, 2)
        bench.add("peer", times, "us", peer=name, width=w.shape[1], layers=len(w),
                  megabytes=w.shape[1] * w.shape[1] * 2 >> 20, floor=round(floor, 2),
                  percent=round(100 * floor / middle, 1))
    return found


def measure(bench: Bench) -> None:
    bandwidth, read = measure_read(bench)
    for width, layers in SHAPES[1:] if bench.quick else SHAPES:
        arrays = make_arrays(width, layers)
        floor = arrays["w"].numel() * 2 / bandwidth / 1e3
        peers = measure_peers(bench, arrays, read, floor)
        for variant in VARIANTS[:1] if bench.quick else VARIANTS:
            measure_variant(bench, variant, arrays, floor, peers)


if __name__ == "__main__":
    main("chain", __doc__, measure)
