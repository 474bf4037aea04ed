"""The same layers with experts in PyTorch, on the same weights: packed arrays are turned into plain
rows where they lie and back again, since a GPU has no room for a second copy of a large model.

`ExpertDecoder` is a whole step, `reference` the layers of moe_program.py for comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.decoder import Cache, Model
from benchmarks.torch_decode import TorchDecoder
from eventtensor.ir.products import PANEL
from eventtensor.llm.model.model_config import ModelConfig
from eventtensor.llm.model.packed_layout import matrices, packed_rows, plain_rows

Arrays = Mapping[str, Any]

# ---- plain rows --------------------------------------------------------------------------------


def rows_of(name: str, w: Any, c: ModelConfig) -> Any:
    """A packed matrix, or those of all experts, as rows in the order that PyTorch's layers take:
    queries, keys, values; gates, channels."""
    rows = plain_rows(w)
    *ahead, _, _ = rows.shape
    if name == "w_qkv":
        heads = rows.view(c.kv_heads, -1, c.head_dim, rows.shape[-1])
        kinds = heads[:, :-2], heads[:, -2], heads[:, -1]
        return torch.cat([kind.reshape(-1, rows.shape[-1]) for kind in kinds])
    if name == "w_gate_up":
        pairs = rows.view(*ahead, -1, 2, PANEL, rows.shape[-1])
        return pairs.transpose(-4, -3).reshape(rows.shape)
    return rows


def packed_of(name: str, rows: Any, c: ModelConfig) -> Any:
    """The way back."""
    *ahead, count, columns = rows.shape
    if name == "w_qkv":
        wide = c.heads * c.head_dim
        narrow = (count - wide) // 2
        kinds = [x.view(c.kv_heads, -1, c.head_dim, columns)
                 for x in rows.split((wide, narrow, narrow))]
        rows = torch.cat(kinds, dim=1).reshape(rows.shape)
    if name == "w_gate_up":
        rows = rows.view(*ahead, 2, -1, PANEL, columns).transpose(-4, -3).reshape(rows.shape)
    return packed_rows(rows, matrices(c)[name].bundle).contiguous()


def _matrices(arrays: Arrays) -> dict[str, list[Any]]:
    """The matrices of each layer, or the one of the model, as they lie."""
    names = [n for n in arrays if n.startswith("w_") or n == "head"]
    return {n: [arrays[n]] if n == "head" else list(arrays[n]) for n in names}


@contextmanager
def as_rows(arrays: Arrays, c: ModelConfig) -> Iterator[dict[str, list[Any]]]:
    """Plain rows of each layer for a while, in the memory of the packed ones."""
    found = _matrices(arrays)
    plain: dict[str, list[Any]] = {}
    try:
        for name, layers in found.items():
            plain[name] = []
            for w in layers:
                rows = rows_of(name, w, c)
                w.view(-1).copy_(rows.reshape(-1))
                plain[name].append(w.view(rows.shape))
        yield plain
    finally:
        for name, done in plain.items():
            for rows in done:
                rows.view(-1).copy_(packed_of(name, rows, c).view(-1))


# ---- a whole step ------------------------------------------------------------------------------

# x, router, w_gate_up, w_down of a layer to what each expert gives: (tokens, top, hidden)
Apply = Callable[[Any, Any, Any, Any], Any]


class _Weights:
    """As torch_decode.py takes them; gains are 1, as in Model."""

    def __init__(self, model: Model, plain: Mapping[str, list[Any]]) -> None:
        c = model.config
        self.config, self.device = c, model.device
        self.embed, (self.head,) = model.arrays["embed"], plain["head"]
        ones = torch.ones(max(c.hidden, c.head_dim), dtype=model.dtype, device=model.device)
        self.last = ones[: c.hidden]
        gains = (self.last, self.last, ones[: c.head_dim], ones[: c.head_dim])
        self.layers = [
            (plain["w_qkv"][k], plain["w_o"][k], (plain["w_router"][k], plain["w_gate_up"][k]),
             plain["w_down"][k], *gains)
            for k in range(c.layers)
        ]


class ExpertDecoder(TorchDecoder):
    """One step of a model with experts after `positions` - 1 tokens of each request, on a copy of
    the keys and values of `cache`."""

    def __init__(self, plain: Mapping[str, list[Any]], cache: Cache, apply: Apply) -> None:
        model, c, last = cache.model, cache.model.config, cache.positions - 1
        super().__init__(_Weights(model, plain), cache.requests, 0)  # type: ignore[arg-type]
        self.apply = apply
        self.cache = [self._rows(cache, layer) for layer in cache.arrays["kv"]]
        self.token = torch.arange(17, 17 + cache.requests, device=model.device)
        self.position = torch.full((1,), last, dtype=torch.int64, device=model.device)
        self.cos, self.sin = cache.arrays["rope"][last].to(model.dtype).repeat(1, 2)
        assert self.cos.shape == (c.head_dim,)

    def shallow(self, layers: int, other: Apply) -> float:
        """How far the logits of the first layers are from those with other experts."""
        weights, cache, apply = self.weights.layers, self.cache, self.apply
        self.weights.layers, self.cache = weights[:layers], cache[:layers]
        found = self.logits()
        self.apply = other
        wanted = self.logits()
        self.weights.layers, self.cache, self.apply = weights, cache, apply
        return apart(found, wanted)

    def _rows(self, cache: Cache, layer: Any) -> tuple[Any, Any]:
        """(requests, heads, positions, channels), out of pages that lie in order."""
        c, n = self.c, cache.positions
        pages = layer.view(cache.requests, -1, c.kv_heads, 2, layer.shape[-2], c.head_dim)
        rows = pages.permute(3, 0, 2, 1, 4, 5).reshape(2, cache.requests, c.kv_heads, -1,
                                                       c.head_dim)
        keys, values = (x[:, :, :n].contiguous() for x in rows)
        return keys, values

    def _mlp(self, x: Any, gate_up: Any, down: Any) -> Any:
        router, w_gate_up = gate_up
        return self.apply(x, router, w_gate_up, down).sum(dim=1).to(x.dtype)


# ---- to compare with ---------------------------------------------------------------------------


def route(scores: Any, c: ModelConfig) -> tuple[Any, Any]:
    """Shares and experts of each token; ties go to the lower expert."""
    assert c.experts is not None
    best = torch.sort(scores, dim=-1, descending=True, stable=True)
    chosen = best.indices[:, : c.experts.top]
    share = torch.softmax(scores, dim=-1).gather(-1, chosen)
    return share / share.sum(dim=-1, keepdim=True) if c.experts.normed else share, chosen


def eager(c: ModelConfig) -> Apply:
    """Token by token, in float32 between two roundings."""

    def apply(x: Any, router: Any, w_gate_up: Any, w_down: Any) -> Any:
        wide, out = x.float(), torch.zeros((*_top(x, c), c.hidden), device=x.device)
        share, chosen = route(wide @ router.float().T, c)
        for t, experts in enumerate(chosen.tolist()):
            for k, e in enumerate(experts):
                gate, up = (w_gate_up[e].float() @ wide[t]).chunk(2)
                act = (F.silu(gate) * up).to(x.dtype).float()
                out[t, k] = share[t, k] * (w_down[e].float() @ act)
        return out

    return apply


def _top(x: Any, c: ModelConfig) -> tuple[int, int]:
    assert c.experts is not None
    return len(x), c.experts.top


def reference(c: ModelConfig, plain: Mapping[str, Any], given: Any) -> Any:
    """What the layers of moe_program.py should give, with gains of 1."""
    apply, h = eager(c), given
    for k in range(c.layers):
        scale = torch.rsqrt((h * h).mean(dim=-1, keepdim=True) + c.norm_eps)
        x = (h * scale).to(plain["w_router"][k].dtype)
        h = h + apply(x, *(plain[n][k] for n in ("w_router", "w_gate_up", "w_down"))).sum(dim=1)
    return h


def apart(found: Any, wanted: Any) -> float:
    """How far rows are from what they should be, of their norm: the one in the middle. Where noise
    decides between two experts, single rows are far off."""
    error = (found.float() - wanted.float()).norm(dim=-1) / wanted.float().norm(dim=-1)
    return float(error.median())
