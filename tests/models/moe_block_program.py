"""The MoE sublayer as a program of its own, with routings that a test decides, and
what it should give in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

import eventtensor as et
from eventtensor.llm.model.decoder_tasks import Weights, embed
from eventtensor.llm.model.model_config import Experts, ModelConfig
from eventtensor.llm.model.moe_block import MoeBlock
from eventtensor.llm.model.moe_decode_single import SingleDecodeMoe
from eventtensor.llm.model.step import Step
from eventtensor.llm.model.tile_sizes import Layout, tiles_for
from eventtensor.llm.weights.checkpoint import shapes
from eventtensor.llm.weights.weight_packing import pack_weights

COUNT, TOP, HIDDEN, WIDE, LAYERS = 16, 4, 128, 96, 2  # two tiles of each product
Arrays = dict[str, np.ndarray]


def config(normed: bool = True, layers: int = LAYERS) -> ModelConfig:
    return ModelConfig("qwen3_moe", 16, HIDDEN, layers, 2, 1, 16, WIDE, 1e-6, 1e4, None, True, True,
                       64, (0,), (1,), Experts(COUNT, TOP, normed))


@et.task
def copy(x, out):
    out[:] = x


def moe_block_program(
    c: ModelConfig, layout: Layout = "cpu", dtype: et.DType = et.f32, tokens: int = 128,
    parts: int = 1
) -> et.Program:
    """Layers of nothing else: rows go in as `given` and come out as `result`. Scores may come in
    parts."""
    assert c.experts is not None
    tiles = replace(tiles_for(c, layout, tokens > 1), score_parts=parts)
    step = Step(c, Weights(layout, dtype), tiles, tokens)
    p, T, mlp, attn = step.p, step.num_tokens, step.mlp, step.attn
    shape = (T, c.hidden)
    given, result = p.input("given", shape, et.f32), p.output("result", shape, et.f32)
    sublayer = (SingleDecodeMoe if tokens == 1 else MoeBlock)(step, c.experts)
    p.call(embed(c.hidden // step.tiles.down), name="begin_rows", grid=(T,),
           reads=lambda t: (given[t, :], step.gains[0, :]),
           writes=lambda t: (attn.h[0, t, :], attn.x[0, t, :], attn.ss[0, t, :]))
    with p.loop("l", c.layers) as at:
        p.call(embed(c.hidden // step.tiles.out), name="pass_on", grid=(T,),
               reads=lambda t: (attn.h[at, t, :], step.gains[2 * at + 1, :]),
               writes=lambda t: (mlp.h[at, t, :], mlp.x[at, t, :], mlp.ss[at, t, :]))
        sublayer.add_calls(at)
    p.call(copy, grid=(T,), reads=lambda t: attn.h[c.layers, t, :],
           writes=lambda t: result[t, :])
    return p


class Drawn:
    """Small experts, so that rows keep most of what decides their routing in the first layer."""

    def __init__(self, c: ModelConfig, router: np.ndarray, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.config = c
        self.tensors = {
            n: rng.standard_normal(s, np.float32) * np.float32(0.5 * s[-1] ** -0.5)
            for n, s in shapes(c).items()
        }
        self.tensors |= {n: router for n in self.tensors if n.endswith("router")}

    def tensor(self, name: str) -> np.ndarray:
        return self.tensors["embed" if name == "head" else name]


def arguments(
    drawn: Drawn, rows: np.ndarray, layout: Layout = "cpu", dtype: et.DType = et.f32
) -> Arrays:
    packed = pack_weights(drawn, layout, dtype.numpy)
    kept = {n: packed[n] for n in ("w_router", "w_gate_up", "w_down")}
    layers = drawn.config.layers
    return {**kept, "gains": np.ones((2 * layers + 1, drawn.config.hidden), np.float32),
            "given": rows.astype(np.float32), "result": np.empty(rows.shape, np.float32),
            "active": np.empty(layers, np.int32)}


def dims(rows: int) -> dict[str, int]:
    """Up to 64 rows get a token, the others come from prompts."""
    chosen = min(rows, 64) if rows > 64 else max(1, rows // 2)
    return {"S": chosen, "P": rows - chosen}


def rows_for(chosen: Sequence[Sequence[int]], seed: int = 1) -> np.ndarray:
    """Rows that a router with a unit vector for each expert sends to these, best first; weaker
    scores of the other experts are equal."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((len(chosen), HIDDEN)) * 0.5
    rows[:, :COUNT] = 0
    for row, experts in zip(rows, chosen, strict=True):
        row[list(experts)] = 3.0 - 0.5 * np.arange(len(experts))
    return rows


def unit_router() -> np.ndarray:
    return np.eye(COUNT, HIDDEN, dtype=np.float32)


def reference(drawn: Drawn, rows: np.ndarray) -> tuple[np.ndarray, list[list[set[int]]]]:
    """What comes out, and the experts of each row in each layer."""
    c, h, used = drawn.config, rows.astype(np.float64), []
    for layer in range(c.layers):
        own = {n.removeprefix(f"layers.{layer}."): x.astype(np.float64)
               for n, x in drawn.tensors.items() if n.startswith(f"layers.{layer}.")}
        h, chosen = _layer(c, own, h)
        used.append([set(map(int, row)) for row in chosen])
    return h, used


def _layer(
    c: ModelConfig, own: Mapping[str, np.ndarray], h: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    x = h / np.sqrt((h * h).mean(axis=1, keepdims=True) + c.norm_eps)
    scores = x @ own["router"].T
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    chosen = np.argsort(-p, axis=1, kind="stable")[:, :TOP]
    share = np.take_along_axis(p, chosen, axis=1)
    if c.experts is not None and c.experts.normed:
        share /= share.sum(axis=1, keepdims=True)
    out = h.copy()
    for t, row in enumerate(chosen):
        for k, e in enumerate(row):
            g = own[f"experts.{e}.w_gate"] @ x[t]
            act = g / (1 + np.exp(-g)) * (own[f"experts.{e}.w_up"] @ x[t])
            out[t] += share[t, k] * (own[f"experts.{e}.w_down"] @ act)
    return out, chosen
