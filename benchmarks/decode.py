"""One decode step of a whole model as one kernel (greedy choice included), beside its floor (bytes
of weights and cache over the read bandwidth of the same run) and PyTorch in a CUDA graph."""

from __future__ import annotations

import gc
import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np
from measure import Bench, gpu_us, graph, here, main, torch
from reading import measure_read

import eventtensor as et
from eventtensor.models.config import ModelConfig
from eventtensor.models.formats.known import KNOWN
from eventtensor.models.llama import SPLIT_TOKENS, llama, page_tokens
from eventtensor.models.pack import packed_shapes
from eventtensor.models.rope import rope_tables
from eventtensor.models.tasks import Weights

STEPS = 5  # in one sample
CASES = (
    ("llama-3.2-1b", 1, 128), ("llama-3.2-1b", 1, 1024), ("llama-3.2-1b", 16, 1024),
    ("llama-3.2-1b", 64, 1024), ("qwen3-0.6b", 1, 128), ("qwen3-0.6b", 1, 960),
    ("qwen3-8b", 1, 1024), ("qwen3-8b", 8, 1024), ("qwen3-8b", 16, 1024), ("qwen3-8b", 64, 1024),
)


@dataclass
class Decoder:
    """Our kernel for up to `batch` requests, with random weights on the device."""

    config: ModelConfig
    batch: int
    context: int

    def __post_init__(self) -> None:
        t, c = torch(), self.config
        program = llama(c, Weights("cuda", et.bf16), tokens=self.batch)
        self.kernel = et.compile(program, target="cuda")
        arrays = {n: _random(shape) for n, shape in packed_shapes(c, "cuda").items()
                  if "norm" not in n}
        page = page_tokens(c)
        each = max(1, SPLIT_TOKENS // page)
        splits = self.context // (page * each) + 1
        pages = self.batch * splits * each
        i32 = {"dtype": t.int32, "device": "cuda"}
        places = t.arange(self.batch, **i32)
        rope = np.stack(rope_tables(c, self.context + 1), axis=1)
        arrays |= {
            "gains": t.ones((2 * c.layers + 1, c.hidden), device="cuda"),
            "qk_gains": t.ones((c.layers, 2, c.head_dim), device="cuda"),
            "rope": t.from_numpy(rope).cuda(),
            "kv": _random((c.layers, pages, c.kv_heads, 2, page, c.head_dim)),
            "token": places + 17, "position": t.full((self.batch,), self.context, **i32),
            "request": places.clone(),
            "slot": places * (splits * each * page) + self.context,
            "table": t.arange(pages, **i32).view(self.batch, splits, each),
            "logits": t.full((self.batch, c.vocab), float("nan"), device="cuda"),
            "chosen": t.full((self.batch,), -1, **i32),
        }
        self.arrays = arrays
        self.step = self.kernel.bind(P=0, W=self.batch * splits, **arrays)

    def floor_bytes(self) -> int:
        """Weights that a step reads once, and the keys and values of every token so far."""
        c, names = self.config, ("w_qkv", "w_o", "w_gate_up", "w_down", "head")
        weights = sum(self.arrays[n].numel() * 2 for n in names)
        return weights + self.batch * (self.context + 1) * c.layers * c.kv_heads * c.head_dim * 4

    def wrong(self, runs: int) -> str:
        """Repeats give the same bits, and the choice is the largest logit."""
        first = None
        for _ in range(runs):
            self.step(here())
            self.kernel.synchronize()
            found = self.arrays["logits"].clone()
            first = found if first is None else first
            if not bool((found == first).all()):
                return "a repeated step gives other logits"
        same = found.argmax(dim=1) == self.arrays["chosen"]
        return "" if bool(same.all()) else "the choice is not the largest logit"

    def close(self) -> None:
        self.kernel.synchronize()
        self.kernel.close()


def _random(shape: tuple[int, ...]) -> Any:
    t = torch()
    return t.empty(shape, dtype=t.bfloat16, device="cuda").normal_(0, 0.02)


def peer_us(config: ModelConfig, batch: int, context: int, samples: int) -> list[float]:
    from torch_decode import TorchDecoder

    t = torch()
    with t.no_grad():
        peer = TorchDecoder(config, batch, context)
        return gpu_us(graph(peer.step, STEPS), samples, STEPS)


def freed() -> None:
    gc.collect()
    torch().cuda.empty_cache()


def measure_case(bench: Bench, name: str, batch: int, context: int, bandwidth: float) -> None:
    config = KNOWN[name]
    fields = {"model": name, "batch": batch, "context": context}
    peer = [us / 1e3 for us in peer_us(config, batch, context, bench.samples)]
    freed()
    decoder = Decoder(config, batch, context)
    measure_step(bench, decoder, fields, bandwidth, peer)
    decoder.close()
    del decoder
    freed()


def measure_step(
    bench: Bench, decoder: Decoder, fields: dict[str, Any], bandwidth: float, peer: list[float]
) -> None:
    floor = round(decoder.floor_bytes() / bandwidth / 1e6, 4)
    said = decoder.wrong(3 if bench.quick else 20)
    if said:
        bench.fail("step", said, **fields)

    def run() -> None:
        for _ in range(STEPS):
            decoder.step(here())

    def add(engine: str, times: list[float], **more: Any) -> float:
        percent = round(100 * floor / statistics.median(times), 1)
        return float(bench.add("step", times, "ms", **fields, floor=floor, engine=engine,
                               percent=percent, **more)["median"])

    other = add("torch graph", peer)
    add("eventtensor", [us / 1e3 for us in gpu_us(run, bench.samples, STEPS)],
        peers={"torch graph": other})


def measure(bench: Bench) -> None:
    bandwidth, _ = measure_read(bench)
    freed()
    for name, batch, context in CASES[:1] if bench.quick else CASES:
        measure_case(bench, name, batch, context, bandwidth)


if __name__ == "__main__":
    main("decode", __doc__, measure)
