"""Steps of a compiled model on random weights, bound by hand: what a step costs is then the kernel
alone. Weights are shared by all kernels of a model, a cache by the steps of one measurement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np

from benchmarks.measure import gpu_us, here, torch
from eventtensor.ir.walk import evaluate
from eventtensor.llm.model.attention_block import SPLIT_TOKENS, page_tokens
from eventtensor.llm.model.model_config import ModelConfig
from eventtensor.llm.model.packed_layout import matrices, packed_shapes
from eventtensor.llm.model.rope import rope_tables
from eventtensor.llm.model.sampler import reach, search_steps
from eventtensor.llm.model.tile_sizes import Layout
from eventtensor.runtime.arguments import bind
from eventtensor.runtime.cuda.device_memory import CELL

TEMPERATURE, TOP_P = 0.8, 0.9
SLACK = 1e-3  # of a sum of probabilities, between two ways to add them


class Asked(NamedTuple):
    """A row of a step: request, position, token."""

    request: int
    position: int
    token: int


class Model:
    """A config with random weights on a device, as the program takes them."""

    def __init__(self, config: ModelConfig, layout: Layout = "cuda", dtype: str = "bfloat16",
                 device: str = "cuda") -> None:
        self.config, self.device, self.dtype = config, device, getattr(torch(), dtype)
        c, ones = config, torch().ones
        self.arrays: dict[str, Any] = {
            name: self.random(shape) for name, shape in packed_shapes(c, layout).items()
            if "norm" not in name
        } | {
            "gains": ones((2 * c.layers + 1, c.hidden), device=device),
            "qk_gains": ones((c.layers, 2, c.head_dim), device=device),
        }

    def random(self, shape: tuple[int, ...]) -> Any:
        return torch().empty(shape, dtype=self.dtype, device=self.device).normal_(0, 0.02)


class Cache:
    """Random keys and values of `requests`, with room for `positions` each; pages in order."""

    def __init__(self, model: Model, requests: int, positions: int) -> None:
        t, c, page = torch(), model.config, page_tokens(model.config)
        self.model, self.requests, self.positions = model, requests, positions
        each = max(1, SPLIT_TOKENS // page)
        self.split = page * each
        splits = -(-positions // self.split)
        pages = requests * splits * each
        rope = np.stack(rope_tables(c, positions), axis=1)
        self.room = splits * self.split  # slots of a request
        self.arrays: dict[str, Any] = {
            "rope": t.from_numpy(rope).to(model.device),
            "kv": model.random((c.layers, pages, c.kv_heads, 2, page, c.head_dim)),
            "table": self._numbers(range(pages)).view(requests, splits, each),
        }

    def _numbers(self, values: Sequence[int]) -> Any:
        t = torch()
        return t.tensor(list(values), dtype=t.int32, device=self.model.device)

    def step(self, rows: Sequence[Asked], chosen: int, sampled: bool = False) -> dict[str, Any]:
        """All arguments of a step that chooses a token for the first `chosen` rows."""
        t, device = torch(), self.model.device
        drawn = self._choices(chosen) if sampled else {}
        c = self.model.config
        used = {} if c.experts is None else {"active": self._numbers([0] * c.layers)}
        return {
            **self.model.arrays, **self.arrays, **drawn, **used,
            "token": self._numbers([r.token for r in rows]),
            "position": self._numbers([r.position for r in rows]),
            "request": self._numbers([r.request for r in rows]),
            "slot": self._numbers([r.request * self.room + r.position for r in rows]),
            "logits": t.full((chosen, self.model.config.vocab), float("nan"), device=device),
            "chosen": self._numbers([-1] * chosen),
            "P": len(rows) - chosen, "W": sum(r.position // self.split + 1 for r in rows),
        }

    def _choices(self, chosen: int) -> dict[str, Any]:
        t, device = torch(), self.model.device

        def each(value: float) -> Any:
            return t.full((chosen,), value, dtype=t.float32, device=device)

        none, wide = self._numbers([]), -(-self.model.config.vocab // 8)
        return {
            **dict.fromkeys(("adjusted", "masked", "prompt"), none),
            **dict.fromkeys(("repetition", "presence", "frequency"), none.float()),
            "allowed": t.empty((0, wide), dtype=t.uint8, device=device),
            "history": none.view(0, 1), "biased": none.view(0, 1),
            "bias": none.view(0, 1).float(), "reach": each(float(reach(0))),
            "sampled": self._numbers(range(chosen)), "origin": self._numbers(range(chosen)),
            "top_k": self._numbers([0] * chosen),
            "temperature": each(TEMPERATURE), "top_p": each(TOP_P),
            "uniform": t.linspace(0.05, 0.95, chosen, device=device),
            "Q": search_steps(0, TOP_P),
        }

    def decode(self, sampled: bool = False) -> dict[str, Any]:
        """The last position of every request."""
        rows = [Asked(r, self.positions - 1, 17 + r) for r in range(self.requests)]
        return self.step(rows, self.requests, sampled)

    def prompt(self, length: int, chunk: int) -> list[dict[str, Any]]:
        """The steps of a prompt of request 0, `chunk` rows each. Some row of every step gets a
        token: only that of the last position is of use."""
        vocab, steps = self.model.config.vocab, []
        for start in range(0, length, chunk):
            end = min(length, start + chunk)
            rows = [Asked(0, k, (31 * k + 7) % vocab) for k in range(start, end)]
            steps.append(self.step([rows[-1], *rows[:-1]], 1))
        return steps

    def after(self, before: Mapping[str, Any], position: int) -> dict[str, Any]:
        """The step whose token is the one that a step of request 0 has chosen."""
        return self.step([Asked(0, position, 0)], 1) | {"token": before["chosen"]}


@dataclass
class Steps:
    """Steps of one kernel, bound, one after the other."""

    kernel: Any  # et.Kernel, or one from an artifact
    arguments: list[dict[str, Any]]

    def __post_init__(self) -> None:
        self.arguments = [taken(self.kernel, a) for a in self.arguments]
        self._bound = [self.kernel.bind(**a) for a in self.arguments]

    def run(self) -> None:
        stream = here()
        for step in self._bound:
            step(stream)

    def check(self, runs: int) -> None:
        def ran() -> None:
            self.run()
            self.kernel.synchronize()

        if said := wrong(ran, self.arguments[-1], runs):
            raise RuntimeError(said)

    def ms(self, samples: int, each: int = 1) -> tuple[float, ...]:
        """Milliseconds of all steps, done `each` times in a sample; what fails is raised."""
        us = gpu_us(lambda: [self.run() for _ in range(each)], samples, each)
        self.kernel.synchronize()
        return tuple(u / 1e3 for u in us)

    def workspace_bytes(self) -> int:
        return max(workspace_bytes(self.kernel.backend, a) for a in self.arguments)

    def close(self) -> None:
        self.kernel.close()


def taken(kernel: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Of the sizes among them those that a kernel has: one for steps of one row has few."""
    known = {d.name for d in kernel.interface.dims}
    return {name: x for name, x in arguments.items() if not isinstance(x, int) or name in known}


def wrong(run: Callable[[], None], last: Mapping[str, Any], runs: int) -> str:
    """What is wrong with a step: repeats must have the same bits, and the choice must be one that
    the logits allow."""
    kept = None
    for _ in range(runs):
        run()
        found = last["logits"].clone(), last["chosen"].clone()
        kept = kept or found
        if not all(bool((x == y).all()) for x, y in zip(found, kept, strict=True)):
            return "a repeated step gives other logits or tokens"
    logits, chosen = last["logits"], last["chosen"].long()
    if not bool(logits.isfinite().all()):
        return "some logits are not finite"
    if "sampled" not in last:
        same = logits.argmax(dim=1) == chosen
        return "" if bool(same.all()) else "the choice is not the largest logit"
    p = (logits / TEMPERATURE).softmax(dim=1)
    own = p.gather(1, chosen[:, None])
    before = p.where(p > own, 0.0).sum(dim=1)
    return "" if bool((before < TOP_P + SLACK).all()) else "a token is drawn that top_p leaves out"


def workspace_bytes(backend: Any, arguments: Mapping[str, Any]) -> int:
    """What a kernel takes of the device for a step, beside its arguments: scratch, words that carry
    flags, two sets of cells, and what each worker has for itself."""
    image = backend.image
    dims, _ = bind(image.interface, backend.adopt(arguments))
    each = -(-evaluate(image.arena, dims) // 256) * 256
    return (evaluate(image.workspace, dims) + evaluate(image.word_bytes, dims)
            + 2 * CELL * evaluate(image.cells, dims) + each * backend.workers)


def floor_bytes(c: ModelConfig, batch: int, context: int, used: int = 0) -> int:
    """Weights that a step reads once, and the keys and values of every token so far, in bf16."""
    cache = 2 * batch * (context + 1) * c.layers * 2 * c.kv_heads * c.head_dim
    return weight_bytes(c, used) + cache


def weight_bytes(c: ModelConfig, used: int = 0) -> int:
    """All matrices in bf16; of experts so many, all layers together."""
    shapes, known = packed_shapes(c, "cuda"), matrices(c)
    shared = sum(prod(shapes[n]) for n, m in known.items() if m.of != "expert")
    return 2 * (shared + used * sum(m.rows * m.columns for m in known.values() if m.of == "expert"))
