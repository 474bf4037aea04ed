"""The peer of decode.py: the same step in PyTorch, as gpt-fast writes it (static cache, a tensor a
layer; one token a request; fused q/k/v and gate/up), with weights of its own in plain rows."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from eventtensor.llm.model.model_config import ModelConfig


class TorchWeights:
    """Random weights of the shapes of `c`, for steps of all sizes."""

    def __init__(self, c: ModelConfig, device: str = "cuda") -> None:
        def weight(rows: int, columns: int) -> Any:
            made = torch.empty((rows, columns), dtype=torch.bfloat16, device=device)
            return made.normal_(0, columns**-0.5)

        def ones(size: int) -> Any:
            return torch.ones(size, dtype=torch.bfloat16, device=device)

        wide, narrow = c.heads * c.head_dim, c.kv_heads * c.head_dim
        self.config, self.device = c, device
        self.embed = weight(c.vocab, c.hidden)
        self.head = self.embed if c.tied else weight(c.vocab, c.hidden)
        self.layers = [
            (weight(wide + 2 * narrow, c.hidden), weight(c.hidden, wide),
             weight(2 * c.intermediate, c.hidden), weight(c.hidden, c.intermediate),
             *(ones(c.hidden) for _ in range(2)), *(ones(c.head_dim) for _ in range(2)))
            for _ in range(c.layers)
        ]
        self.last = ones(c.hidden)


class TorchDecoder:
    """`step` chooses the next token of each request: the likeliest, or with `top_p` one that is
    drawn."""

    def __init__(self, weights: TorchWeights, batch: int, context: int,
                 temperature: float = 0.0, top_p: float = 1.0) -> None:
        c, device = weights.config, weights.device
        self.c, self.weights, self.batch = c, weights, batch
        self.temperature, self.top_p = temperature, top_p
        shape = (batch, c.kv_heads, context + 1, c.head_dim)
        self.cache = [
            tuple(torch.randn(shape, dtype=torch.bfloat16, device=device) for _ in range(2))
            for _ in range(c.layers)
        ]
        self.token = torch.zeros(batch, dtype=torch.int64, device=device)
        self.position = torch.full((1,), context, dtype=torch.int64, device=device)
        self.chosen = torch.zeros_like(self.token)
        turns = torch.randn(2, c.head_dim // 2, dtype=torch.bfloat16, device=device)
        self.cos, self.sin = turns.repeat(1, 2)

    def step(self) -> None:
        self.chosen.copy_(self._choice(self.logits()))

    def logits(self) -> Any:
        c, w = self.c, self.weights
        h = w.embed[self.token]
        for weights, cache in zip(w.layers, self.cache, strict=True):
            qkv, out, gate_up, down, before, between, q_gain, k_gain = weights
            x = F.linear(_normed(h, before, c.norm_eps), qkv)
            h = h + F.linear(self._attention(cache, x, q_gain, k_gain), out)
            h = h + self._mlp(_normed(h, between, c.norm_eps), gate_up, down)
        return F.linear(_normed(h, w.last, c.norm_eps), w.head)

    def _mlp(self, x: Any, gate_up: Any, down: Any) -> Any:
        gate, up = F.linear(x, gate_up).chunk(2, dim=-1)
        return F.linear(F.silu(gate) * up, down)

    def _attention(self, cache: Any, x: Any, q_gain: Any, k_gain: Any) -> Any:
        c, (keys, values) = self.c, cache
        sizes = (c.heads, c.kv_heads, c.kv_heads)
        q, k, v = x.view(self.batch, -1, 1, c.head_dim).split(sizes, dim=1)
        if c.qk_norm:
            q, k = _normed(q, q_gain, c.norm_eps), _normed(k, k_gain, c.norm_eps)
        keys.index_copy_(2, self.position, self._turned(k))
        values.index_copy_(2, self.position, v)
        mixed = F.scaled_dot_product_attention(self._turned(q), keys, values, enable_gqa=True)
        return mixed.reshape(self.batch, -1)

    def _turned(self, x: Any) -> Any:
        low, high = x.chunk(2, dim=-1)
        return x * self.cos + torch.cat((-high, low), dim=-1) * self.sin

    def _choice(self, logits: Any) -> Any:
        """A draw without a wait for the host: the largest p / e, with e exponential."""
        if self.temperature == 0:
            return logits.argmax(dim=-1)
        p, tokens = (logits.float() / self.temperature).softmax(dim=-1).sort(descending=True)
        kept = p.where(p.cumsum(dim=-1) - p < self.top_p, 0.0)
        found = (kept / torch.empty_like(kept).exponential_(1)).argmax(dim=-1, keepdim=True)
        return tokens.gather(-1, found)[:, 0]


def _normed(x: Any, gain: Any, eps: float) -> Any:
    return F.rms_norm(x, (x.shape[-1],), gain, eps)
