"""Tile sizes of the matrices of a model, for each target and number of tokens. They decide the
packed layout (packed_layout.py), because all kernels of a model share its weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...ir.products import BUNDLES, PANEL
from ...targets.devices import DEFAULT_DEVICE
from ...targets.target import CudaTarget
from .model_config import ModelConfig

# cuda: for kernels of any number of tokens; cuda_many: for kernels of many tokens only. Experts
# gain 1% to 2% by it. It becomes a plug-in of the kernel IR.
Layout = Literal["cpu", "cuda", "cuda_many"]

WIDE_ROWS, PART_COLUMNS = 128, 128  # of a tile with many tokens, and the unit of split-K parts
ROUND_ROWS, MAX_ROWS = 256, 512  # of a tile: for one pass over x, and in all


@dataclass(frozen=True)
class Tiles:
    """The rows of a tile of each matrix, and the split-K parts of some of them, which other tasks
    add."""

    qkv: int
    out: int
    gate_up: int
    down: int
    head: int
    out_parts: int = 1
    down_parts: int = 1
    score_parts: int = 1
    qkv_parts: int = 1


def tiles_for(
    c: ModelConfig, layout: Layout, many: bool = False, target: CudaTarget = DEFAULT_DEVICE,
) -> Tiles:
    """On a GPU a matrix has a tile for each worker where its rows divide so, because each task pays
    for a hop and a reduction; the experts of a token count together. On a CPU a tile fits a cache.
    The head has no hop, so small tiles avoid a long tail.

    With `many` tokens, tiles of residual projections have up to WIDE_ROWS rows, so that x is read
    less often, and as many split-K parts as give each worker a task. Experts have few tokens each
    and many tiles together, so they need no parts. The RoPE task adds the parts of queries, keys
    and values; with experts these tiles are smaller and have fewer parts."""
    workers, costs = target.multiprocessors, target.costs.tiles
    qkv, hidden = (c.heads + 2 * c.kv_heads) * c.head_dim, c.hidden
    if layout == "cpu":
        return Tiles(_most(qkv, PANEL, 64), _most(hidden, PANEL, 64),
                     _most(2 * c.intermediate, 2 * PANEL, 128), _most(hidden, PANEL, 64),
                     _most(c.vocab, PANEL, 256))
    active = 1 if c.experts is None else c.experts.top
    first = _least(qkv, PANEL, workers)
    gate_up = _least(2 * c.intermediate, 2 * PANEL, workers // active)
    down = _least(hidden, PANEL, workers)
    most = costs.max_batch_score_parts if many else costs.max_score_parts
    scores = 1 if c.experts is None else _parts(hidden, most)
    if not many:
        return Tiles(
            first,
            _least(hidden, PANEL, workers),
            gate_up,
            down,
            _most(c.vocab, PANEL, 16 * PANEL),
            score_parts=scores,
        )
    out, out_parts = _residual_tile(hidden, c.heads * c.head_dim, target)
    head = _most(c.vocab, PANEL, WIDE_ROWS)
    if c.experts is not None:
        gate_up = _most(2 * c.intermediate, 2 * PANEL, WIDE_ROWS)
        first = _most(qkv, 4 * PANEL, ROUND_ROWS)
        return Tiles(first, out, gate_up, _most(hidden, PANEL, WIDE_ROWS), head, out_parts,
                     score_parts=scores,
                     qkv_parts=_parts(hidden, max(1, workers // (qkv // first))))
    first, qkv_parts = _tile_and_parts(qkv, hidden, target) or (first, 1)
    down, down_parts = _residual_tile(hidden, c.intermediate, target)
    return Tiles(first, out, gate_up, down, head, out_parts, down_parts, qkv_parts=qkv_parts)


def bundles_for(c: ModelConfig, layout: Layout = "cuda") -> dict[str, int]:
    """The panels of a bundle of each matrix on a GPU: the most with which every tile has whole
    bundles, in kernels for one token (if there are any) and for many, because all kernels share the
    weights."""
    few, many = tiles_for(c, "cuda"), tiles_for(c, "cuda", many=True)
    kernels = (many,) if layout == "cuda_many" else (many, few)

    def most(*rows: int) -> int:
        """The most panels that all tiles have as whole bundles."""
        return max((n for n in BUNDLES if all(r % (n * PANEL) == 0 for r in rows)), default=1)

    return {
        "w_qkv": most(*(t.qkv for t in kernels)),
        "w_o": most(*(t.out for t in kernels)),
        "w_gate_up": most(*(t.gate_up for t in kernels)),
        "w_down": most(*(t.down for t in kernels)),
        "head": most(*(t.head for t in kernels)),
    }


def _least(rows: int, step: int, most: int) -> int:
    """The smallest tile with at most `most` tiles in all; else all rows."""
    sizes = range(step, rows + 1, step)
    return next((r for r in sizes if rows % r == 0 and rows // r <= most), rows)


def _most(rows: int, step: int, top: int) -> int:
    """The largest tile of at most `top` rows; else all rows."""
    fit = (r for r in range(step, min(rows, top) + 1, step) if rows % r == 0)
    return max(fit, default=rows)


def _residual_tile(hidden: int, columns: int, target: CudaTarget) -> tuple[int, int]:
    """Rows of a tile of a residual projection, and as many split-K parts as give each worker a
    task."""
    tile = _most(hidden, PANEL, WIDE_ROWS)
    return tile, _parts(columns, target.multiprocessors // (hidden // tile))


def _tile_and_parts(rows: int, columns: int, target: CudaTarget) -> tuple[int, int] | None:
    """Rows of a tile and split-K parts with which tasks end soonest, at most one task for each
    worker. A task streams weights while it loads x, once for each ROUND_ROWS rows of a tile."""
    workers, costs = target.multiprocessors, target.costs.tiles

    def cost(r: int, n: int) -> float:
        share = max(rows // r * n / workers, costs.min_worker_share)
        lines = columns // n // PART_COLUMNS * -(-r // ROUND_ROWS)
        streamed = max(2 * r * columns // n * share, lines * costs.activation_line_bytes)
        return streamed + n * costs.partial_sum_bytes

    fit = [(cost(r, n), r, n)
           for r in range(4 * PANEL, min(rows, MAX_ROWS) + 1, 4 * PANEL) if rows % r == 0
           for n in range(2, workers * r // rows + 1) if columns % (n * PART_COLUMNS) == 0]
    _, r, n = min(fit, default=(0, 0, 0))
    return (r, n) if fit else None


def _parts(columns: int, most: int) -> int:
    """The most split-K parts, up to `most`."""
    fit = (n for n in range(1, most + 1) if columns % (n * PART_COLUMNS) == 0)
    return max(fit, default=1)
