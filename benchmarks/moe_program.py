"""Layers that are nothing but experts, from the router to the residual, as one program: what moe.py
measures beside a whole model, also under other schedules and events of the same tiles.

A child is started as `moe_program.py MODEL LAYERS TOKENS SCHEDULE FOLDER`; it compiles one of them.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import eventtensor as et
from benchmarks.kernels import compiled
from eventtensor.llm.model.decoder_tasks import Weights, embed
from eventtensor.llm.model.model_config import ModelConfig
from eventtensor.llm.model.model_presets import PRESETS
from eventtensor.llm.model.moe_block import MoeBlock
from eventtensor.llm.model.moe_decode_single import SingleDecodeMoe
from eventtensor.llm.model.step import Residual, Step
from eventtensor.llm.model.tile_sizes import Layout, tiles_for

FIRST, SECOND, SUM = "experts_gate_up", "experts_down", "combine_experts"
BARRIER = "barrier"
# Of the two products; `barrier` is `auto` with one event for all experts between two stages.
SCHEDULES = ("static", "ticket", "push", BARRIER, "auto")


def layout_for(tokens: int) -> Layout:
    """Each program has weights of its own."""
    return "cuda" if tokens == 1 else "cuda_many"


@et.task
def copied(x, out):
    out[:] = x


class ChainStep(Step):
    """What a layer gives is what the next one begins with: there is one residual, not two."""

    def _residual(self, name: str, layers: int, tile: int, parts: int) -> Residual:
        return self.attn if name == "mlp" else super()._residual(name, layers, tile, parts)


class Retold:
    """A program whose calls get other events than whoever makes them says."""

    def __init__(self, program: et.Program, told: dict[str, dict[str, Any]]) -> None:
        self._program, self._told = program, told

    def call(self, kind: Any, **given: Any) -> None:
        self._program.call(kind, **(given | self._told.get(given.get("name", kind.name), {})))


def barred(sublayer: Any, at: Any, made: Any) -> dict[str, dict[str, Any]]:
    """All tiles of the second product wait for all of the first, all tokens for all of both. (For
    one row the second product ends a layer.)"""
    first = {FIRST: {"notifies": lambda a, i: made[at]}}
    if isinstance(sublayer, SingleDecodeMoe):  # its loader needs the routing
        return first | {SECOND: {"waits": lambda i: (sublayer.routed[at], made[at])}}
    return first | {
        SECOND: {"waits": lambda a, j, k: made[at], "notifies": lambda a, j, k: sublayer.over[at]},
        SUM: {"waits": lambda t, i: (sublayer.routed[at], sublayer.over[at])},
    }


def chain(c: ModelConfig, weights: Weights, tokens: int, bar: bool = False) -> et.Program:
    """Rows go in as `given` and come out as `result`."""
    assert c.experts is not None
    step = ChainStep(c, weights, tiles_for(c, weights.layout, tokens > 1), tokens)
    p, shape, rows = step.p, (step.num_tokens, c.hidden), step.attn
    given, result = p.input("given", shape, et.f32), p.output("result", shape, et.f32)
    sublayer = (SingleDecodeMoe if tokens == 1 else MoeBlock)(step, c.experts)
    made = p.events("all_made", (c.layers,)) if bar else None
    p.call(embed(int(rows.ss.shape[2])), name="begin_rows", grid=(step.num_tokens,),
           reads=lambda t: (given[t, :], step.gains[0, :]),
           writes=lambda t: (rows.h[0, t, :], rows.x[0, t, :], rows.ss[0, t, :]))
    with p.loop("l", c.layers) as at:
        if bar:
            step.p = Retold(p, barred(sublayer, at, made))  # type: ignore[assignment]
        sublayer.add_calls(at)
    p.call(copied, name="end_rows", grid=(step.num_tokens,), reads=lambda t: rows.h[c.layers, t, :],
           writes=lambda t: result[t, :])
    return p


def config_of(model: str, layers: int) -> ModelConfig:
    return replace(PRESETS[model], layers=layers)


@dataclass(frozen=True)
class WantedChain:
    """A kernel for up to `tokens` rows a launch."""

    model: str
    layers: int
    tokens: int
    schedule: str = "auto"

    def program(self) -> et.Program:
        weights = Weights(layout_for(self.tokens), et.bf16)
        return chain(config_of(self.model, self.layers), weights, self.tokens,
                     self.schedule == BARRIER)

    def options(self) -> dict[str, Any]:
        """A barrier is a counter: flags would tell of each tile by itself."""
        if self.schedule == BARRIER:
            bars = ("all_made",) if self.tokens == 1 else ("all_made", "experts_over")
            return {"handoff": dict.fromkeys(bars, "counter")}
        return {} if self.schedule == "auto" else {"schedule": dict.fromkeys((FIRST, SECOND),
                                                                             self.schedule)}

    def words(self) -> tuple[str, ...]:
        return self.model, str(self.layers), str(self.tokens), self.schedule

    def script(self) -> Path:
        return Path(__file__)


def child(model: str, layers: str, tokens: str, schedule: str, folder: str) -> dict[str, Any]:
    return compiled(WantedChain(model, int(layers), int(tokens), schedule), folder)


if __name__ == "__main__":
    print(json.dumps(child(*sys.argv[1:])))
