"""A full-size model of random weights on the GPU, packed as the kernel takes them, and one decode
step of it in torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from eventtensor.llm.model.model_config import ModelConfig
from eventtensor.llm.model.packed_layout import matrices, packed_rows, packed_shapes, plain_rows
from eventtensor.llm.model.rope import rope_tables
from eventtensor.llm.model.tile_sizes import Layout


def random_packed(
    c: ModelConfig, layout: Layout, seed: int = 0, device: str = "cuda"
) -> dict[str, Any]:
    """Matrices on the device, norms on the host; a tied head is the embedding, packed."""
    rng = torch.Generator(device).manual_seed(seed)
    columns = {name: m.columns for name, m in matrices(c).items()} | {"embed": c.hidden}
    out: dict[str, Any] = {}
    for name, shape in packed_shapes(c, layout).items():
        if name in columns:
            made = torch.empty(shape, dtype=torch.bfloat16, device=device)
            spread = 4 if name == "w_router" else 1  # so that noise seldom decides between experts
            out[name] = made.normal_(0, spread * columns[name] ** -0.5, generator=rng)
        else:
            drawn = np.random.default_rng(seed + len(name)).standard_normal(shape, np.float32)
            out[name] = 1 + drawn / 10
    if c.tied:
        out["head"] = packed_rows(out["embed"], matrices(c, layout)["head"].bundle).contiguous()
    return out


@dataclass(frozen=True)
class TorchLlama:
    """`kv` is the cache of the kernel: keys and values of the tokens before are read from it."""

    config: ModelConfig
    weights: dict[str, Any]
    kv: torch.Tensor
    positions: int

    def logits(self, token: int, position: int, pages: Sequence[int], dtype: Any) -> torch.Tensor:
        """After one token of a request on these pages; sums of norms and softmax are float32."""
        c, w = self.config, self.weights
        h = w["embed"][token].to(dtype)
        rope = [self._here(x[position]).to(dtype) for x in rope_tables(c, self.positions)]
        for layer in range(c.layers):
            norms = self._here(w["norms"][layer])
            x = self._normed(h, norms[0])
            y = (plain_rows(w["w_qkv"][layer]).to(dtype) @ x).view(c.kv_heads, -1, c.head_dim)
            mixed = self._attended(layer, y, position, pages, rope)
            h = h + plain_rows(w["w_o"][layer]).to(dtype) @ mixed
            x = self._normed(h, norms[1])
            h = h + (self._mlp(x, (layer,)) if c.experts is None else self._routed(x, layer))
        last = self._normed(h, self._here(w["final_norm"]))
        return (plain_rows(w["head"]).to(dtype) @ last).float()

    def _mlp(self, x: torch.Tensor, at: tuple[int, ...]) -> torch.Tensor:
        """`at`: a layer, or one of its experts."""
        w_gate_up, w_down = (plain_rows(self.weights[n][at]).to(x.dtype)
                             for n in ("w_gate_up", "w_down"))
        pair = (w_gate_up @ x).view(-1, 2, 16)
        gate, up = pair[:, 0].reshape(-1), pair[:, 1].reshape(-1)
        return w_down @ (torch.nn.functional.silu(gate) * up)

    def _routed(self, x: torch.Tensor, layer: int) -> torch.Tensor:
        known = self.config.experts
        assert known is not None
        scores = (plain_rows(self.weights["w_router"][layer]).to(x.dtype) @ x).float()
        share, chosen = torch.softmax(scores, -1).topk(known.top)
        share = share / share.sum() if known.normed else share
        found = (s * self._mlp(x, (layer, e)).float()
                 for s, e in zip(share, chosen.tolist(), strict=True))
        return sum(found).to(x.dtype)

    def _here(self, x: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(x).to(self.kv.device)

    def _normed(self, h: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        wide = h.float()
        scale = torch.rsqrt(wide.pow(2).mean() + self.config.norm_eps)
        return (wide * scale * gain).to(h.dtype)

    def _attended(
        self, layer: int, y: torch.Tensor, position: int, pages: Sequence[int],
        rope: Sequence[torch.Tensor],
    ) -> torch.Tensor:
        """`y`: for each head of keys its queries, the key and the value of this token."""
        c, dtype = self.config, y.dtype

        def turned(x: torch.Tensor) -> torch.Tensor:
            low, high = x.chunk(2, -1)
            cos, sin = rope
            return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)

        if c.qk_norm:
            gains = self._here(self.weights["qk_norms"][layer])
            wide = y[:, :-1].float()
            scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + c.norm_eps)
            own = torch.cat([gains[:1].expand(wide.shape[1] - 1, -1), gains[1:]])
            y = torch.cat([(wide * scale * own).to(dtype), y[:, -1:]], 1)
        query, key, value = turned(y[:, :-2]), turned(y[:, -2]), y[:, -1]
        held = self.kv[layer, list(pages)].permute(1, 2, 0, 3, 4)  # head, 2, page, token, channel
        old = held.reshape(c.kv_heads, 2, -1, c.head_dim)[:, :, :position].to(dtype)
        # The kernel puts this token into the cache too, in its dtype.
        keys = torch.cat([old[:, 0], key.to(self.kv.dtype).to(dtype)[:, None]], 1)
        values = torch.cat([old[:, 1], value.to(self.kv.dtype).to(dtype)[:, None]], 1)
        score = torch.einsum("hgd,htd->hgt", query, keys) * c.head_dim**-0.5
        weight = torch.softmax(score.float(), -1).to(dtype)
        return torch.einsum("hgt,htd->hgd", weight, values).reshape(-1)
