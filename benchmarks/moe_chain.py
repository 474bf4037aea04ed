"""Parts of moe.py: layers of experts alone, beside the same layers as Triton kernels in a CUDA
graph, and the schedules of their products compared."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from benchmarks.decode import OURS, reported
from benchmarks.decoder import taken
from benchmarks.kernels import Made
from benchmarks.measure import Bench, Row, gpu_us, graph_us, here, torch
from benchmarks.moe_program import SCHEDULES, WantedChain, config_of, layout_for
from eventtensor.llm.model.model_config import ModelConfig
from eventtensor.llm.model.packed_layout import matrices, packed_rows, packed_shapes, plain_rows

MODEL, LAYERS, MOST = "qwen3-30b-a3b", 8, 64
TOKENS, COMPARED = (1, 8, 32, 64), (1, 8, 64)
AIMS = {1: 65}  # percent of the read bandwidth; 80 with more tokens
LAUNCHES = 4  # in one sample
PEER = "triton graph"
ALLOWED = 0.05  # of what layers add to a row: an expert that is left out gives 0.3 or so
SPREAD = 4  # of scores, so that noise decides only between experts whose shares are small
SEED = 1


def wanted(tokens: int, schedule: str = "auto") -> WantedChain:
    return WantedChain(MODEL, LAYERS, 1 if tokens == 1 else MOST, schedule)


@dataclass
class Layers:
    """Random weights on the device, packed, and rows that go through them."""

    device: str = "cuda"
    weights: dict[str, Any] = field(init=False)  # as one row takes them
    _many: dict[str, Any] = field(init=False)  # as many do

    def __post_init__(self) -> None:
        torch().manual_seed(SEED)
        shapes = packed_shapes(self.config, "cuda")
        own = {n: m for n, m in matrices(self.config).items()
               if m.of == "expert" or n == "w_router"}
        self.weights = {
            n: torch().empty(shapes[n], dtype=torch().bfloat16, device=self.device)
            .normal_(0, m.columns**-0.5) for n, m in own.items()
        }
        self.weights["w_router"].mul_(SPREAD)
        many = matrices(self.config, layout_for(MOST))
        self._many = {n: packed_rows(plain_rows(w), many[n].bundle).contiguous()
                      for n, w in self.weights.items()}

    @property
    def config(self) -> ModelConfig:
        return config_of(MODEL, LAYERS)

    def gains(self) -> Any:
        return torch().ones((2 * LAYERS + 1, self.config.hidden), device=self.device)

    def given(self, tokens: int) -> Any:
        """The first rows of those for more tokens."""
        rng = torch().Generator(self.device).manual_seed(SEED)
        shape = (MOST, self.config.hidden)
        return torch().randn(shape, generator=rng, device=self.device)[:tokens]

    def arguments(self, tokens: int) -> dict[str, Any]:
        t, given = torch(), self.given(tokens)
        used = t.zeros(LAYERS, dtype=t.int32, device=self.device)
        weights = self.weights if layout_for(tokens) == layout_for(1) else self._many
        return {**weights, "gains": self.gains(), "given": given, "active": used,
                "result": t.full_like(given, float("nan")), "P": 0}

    def bytes_read(self, used: int) -> int:
        """The router of every layer, and so many experts of all layers together."""
        each = sum(m.rows * m.columns for m in matrices(self.config).values() if m.of == "expert")
        return 2 * (self.weights["w_router"].numel() + used * each)


@dataclass
class Chains:
    """What is there to measure: compiled kernels, layers, and GB/s that memory gives."""

    bench: Bench
    made: dict[Any, Made]
    bandwidth: float
    layers: Layers
    wanted_rows: Callable[[int], Any]  # what so many tokens should give

    def floor(self, used: int) -> float:
        """Microseconds a layer."""
        return self.layers.bytes_read(used) / self.bandwidth / 1e3 / LAYERS

    def told(self, us: Iterable[float], used: int) -> Row:
        """What stands beside microseconds a layer."""
        floor = self.floor(used)
        return {"floor": round(floor, 3), "percent": round(100 * floor / statistics.median(us), 1),
                "experts": round(used / LAYERS, 1),
                "weight_bytes": self.layers.bytes_read(used)}

    # ---- ours ------------------------------------------------------------------------------

    def ours(self, tokens: int, schedule: str = "auto") -> tuple[list[float], int]:
        """Microseconds a layer, and the experts used; right first."""
        arguments = self.layers.arguments(tokens)
        with closing(self.made[wanted(tokens, schedule)].load()) as kernel:
            step = kernel.bind(**taken(kernel, arguments))
            self.check(step, kernel, arguments, tokens)
            us = gpu_us(lambda: [step(here()) for _ in range(LAUNCHES)], self.bench.samples,
                        LAUNCHES)
            kernel.synchronize()
        return [u / LAYERS for u in us], int(arguments["active"].sum())

    def check(self, step: Any, kernel: Any, arguments: dict[str, Any], tokens: int) -> None:
        kept = None
        for _ in range(3 if self.bench.quick else 20):
            step(here())
            kernel.synchronize()
            found = arguments["result"].clone()
            kept = found if kept is None else kept
            if not bool((found == kept).all()):
                raise RuntimeError("a repeated launch gives other rows")
        self.near(kept, tokens)

    def near(self, found: Any, tokens: int) -> None:
        from benchmarks.moe_torch import apart

        given = self.layers.given(tokens)
        error = apart(found - given, self.wanted_rows(tokens) - given)
        if not error <= ALLOWED:
            raise RuntimeError(f"what layers add is {error:.2e} off; allowed is {ALLOWED}")

    # ---- rows ------------------------------------------------------------------------------

    def beside_peer(self, tokens: int, peer: Row) -> None:
        about = {"model": MODEL, "layers": LAYERS, "batch": tokens, "engine": OURS}
        with reported(self.bench, "chain", **about):
            us, used = self.ours(tokens)
            self.bench.add("chain", us, "us a layer", **about, **self.told(us, used),
                           aim_percent=AIMS.get(tokens, 80), peers=peer)

    def schedules(self, tokens: int) -> None:
        """`auto` comes last, and says by how much it is off the best."""
        best = float("inf")
        for schedule in SCHEDULES:
            about = {"model": MODEL, "layers": LAYERS, "batch": tokens,
                     "schedule": schedule}
            with reported(self.bench, "schedule", **about):
                us, used = self.ours(tokens, schedule)
                best = min(best, statistics.median(us))
                over = round(100 * (statistics.median(us) / best - 1), 1)
                more = {"over_best": over} if schedule == "auto" else {}
                self.bench.add("schedule", us, "us a layer", **about, **self.told(us, used), **more)


# ---- the peer ----------------------------------------------------------------------------------


def peer_rows(chains: Chains, plain: dict[str, Any], tokens: int, beside: Row) -> None:
    """A row of the peer's, with the best of its tiles; and what stands beside ours."""
    from benchmarks.moe_triton import TILES

    about = {"model": MODEL, "layers": LAYERS, "batch": tokens, "engine": PEER}
    found: dict[Any, float] = {}
    said = ""
    for tile in TILES:
        try:
            found[tile] = statistics.median(peer_us(chains, plain, tokens, tile, 5)[0])
        except Exception as e:  # a tile that the compiler or the device does not take
            said = f"{type(e).__name__}: {str(e)[:400]}"
    if not found:
        beside[PEER] = f"refused: {said}"
        chains.bench.refuse("chain", said, **about)
        return
    tile = min(found, key=lambda t: found[t])
    us, used = peer_us(chains, plain, tokens, tile, chains.bench.samples)
    beside[PEER] = float(f"{statistics.median(us):.6g}")
    chains.bench.add("chain", us, "us a layer", **about, **chains.told(us, used), tile=str(tile))


def peer_us(
    chains: Chains, plain: dict[str, Any], tokens: int, tile: Any, samples: int
) -> tuple[list[float], int]:
    """Microseconds a layer of a graph, and the experts used."""
    from benchmarks.moe_triton import Chain, Experts

    c, layers = chains.layers.config, chains.layers
    assert c.experts is not None
    experts = Experts(tokens, c.experts.count, c.experts.top, c.hidden, c.intermediate,
                      c.experts.normed, layers.device)
    chain = Chain(experts, layers.given(tokens), plain, layers.gains(), c.norm_eps, tile)
    chain.step()
    chains.near(chain.h, tokens)
    us = graph_us(chain.step, samples, LAUNCHES)
    chains.near(chain.h, tokens)
    return [u / LAYERS for u in us], chain.used()


def compiled_chains(parts: Iterable[str]) -> tuple[WantedChain, ...]:
    """The kernels of the parts `chain` and `schedules`."""
    found = [wanted(t) for t in TOKENS if "chain" in parts]
    found += [wanted(t, s) for t in COMPARED for s in SCHEDULES if "schedules" in parts]
    return tuple(dict.fromkeys(found))


def measure_chains(
    bench: Bench, made: dict[Any, Made], bandwidth: float, parts: Iterable[str], peers: bool
) -> None:
    from benchmarks.moe_torch import reference, rows_of

    layers = Layers()
    c = layers.config
    plain = {n: torch().stack([rows_of(n, w[k], c) for k in range(c.layers)])
             for n, w in layers.weights.items()}
    right: dict[int, Any] = {}

    def rows(tokens: int) -> Any:
        if tokens not in right:
            right[tokens] = reference(c, plain, layers.given(tokens))
        return right[tokens]

    chains = Chains(bench, made, bandwidth, layers, rows)
    for tokens in TOKENS if "chain" in parts else ():
        beside: Row = {}  # is filled in later: ours first, whatever becomes of the peer
        chains.beside_peer(tokens, beside)
        if peers:
            with reported(bench, "chain", model=MODEL, layers=c.layers, batch=tokens, engine=PEER):
                peer_rows(chains, plain, tokens, beside)
    for tokens in COMPARED if "schedules" in parts else ():
        chains.schedules(tokens)
