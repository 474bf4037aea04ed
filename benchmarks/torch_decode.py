"""The peer of decode.py: the same step in PyTorch, as gpt-fast writes it (static cache, one token a
request, fused q/k/v and gate/up), with weights of its own in plain rows."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from eventtensor.models.config import ModelConfig


class TorchDecoder:
    """Random weights of the shapes of `c`; `step` chooses the next token of each request."""

    def __init__(self, c: ModelConfig, batch: int, context: int) -> None:
        self.c, self.batch = c, batch
        wide, narrow = c.heads * c.head_dim, c.kv_heads * c.head_dim
        self.embed = _weight(c.vocab, c.hidden)
        self.head = self.embed if c.tied else _weight(c.vocab, c.hidden)
        self.layers = [
            (_weight(wide + 2 * narrow, c.hidden), _weight(c.hidden, wide),
             _weight(2 * c.intermediate, c.hidden), _weight(c.hidden, c.intermediate),
             *(_ones(c.hidden) for _ in range(2)), *(_ones(c.head_dim) for _ in range(2)))
            for _ in range(c.layers)
        ]
        self.last = _ones(c.hidden)
        shape = (c.layers, 2, batch, c.kv_heads, context + 1, c.head_dim)
        self.cache = torch.randn(shape, dtype=torch.bfloat16, device="cuda")
        self.token = torch.zeros(batch, dtype=torch.int64, device="cuda")
        self.position = torch.full((1,), context, dtype=torch.int64, device="cuda")
        self.chosen = torch.zeros_like(self.token)
        turns = torch.randn(2, c.head_dim // 2, dtype=torch.bfloat16, device="cuda")
        self.cos, self.sin = turns.repeat(1, 2)

    def step(self) -> None:
        c, h = self.c, self.embed[self.token]
        for layer, weights in enumerate(self.layers):
            qkv, out, gate_up, down, before, between, q_gain, k_gain = weights
            x = F.linear(_normed(h, before, c.norm_eps), qkv)
            h = h + F.linear(self._attention(layer, x, q_gain, k_gain), out)
            gate, up = F.linear(_normed(h, between, c.norm_eps), gate_up).chunk(2, dim=-1)
            h = h + F.linear(F.silu(gate) * up, down)
        logits = F.linear(_normed(h, self.last, c.norm_eps), self.head)
        self.chosen.copy_(logits.argmax(dim=-1))

    def _attention(self, layer: int, x: Any, q_gain: Any, k_gain: Any) -> Any:
        c = self.c
        sizes = (c.heads, c.kv_heads, c.kv_heads)
        q, k, v = x.view(self.batch, -1, 1, c.head_dim).split(sizes, dim=1)
        if c.qk_norm:
            q, k = _normed(q, q_gain, c.norm_eps), _normed(k, k_gain, c.norm_eps)
        keys, values = self.cache[layer]
        keys.index_copy_(2, self.position, self._turned(k))
        values.index_copy_(2, self.position, v)
        mixed = F.scaled_dot_product_attention(self._turned(q), keys, values, enable_gqa=True)
        return mixed.reshape(self.batch, -1)

    def _turned(self, x: Any) -> Any:
        low, high = x.chunk(2, dim=-1)
        return x * self.cos + torch.cat((-high, low), dim=-1) * self.sin


def _weight(rows: int, columns: int) -> Any:
    made = torch.empty((rows, columns), dtype=torch.bfloat16, device="cuda")
    return made.normal_(0, columns**-0.5)


def _ones(size: int) -> Any:
    return torch.ones(size, dtype=torch.bfloat16, device="cuda")


def _normed(x: Any, gain: Any, eps: float) -> Any:
    return F.rms_norm(x, (x.shape[-1],), gain, eps)
