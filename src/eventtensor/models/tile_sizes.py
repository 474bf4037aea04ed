"""How matrices are cut into tiles, and so how they may lie: for a GPU, panels whose spans lie
together in all tiles of all kernels of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..ir.products import BUNDLES, PANEL
from ..targets.h200 import H200
from .model_config import ModelConfig

# For a GPU so that tiles of one row and of many can take them, or for those of many alone.
Layout = Literal["cpu", "cuda", "cuda_many"]

WIDE_ROWS, PART_COLUMNS = 128, 128  # that products with many columns take at a time
# Where all steps have so many rows, tiles have up to HALF_ROWS if parts of K had fewer columns than
# these: what is written and added up in short parts costs more than lines of x.
MANY_ROWS, LONG_PART, HALF_ROWS = 34, 512, 64
ROUND_ROWS, MOST_ROWS = 256, 512  # of a tile, that meet x at once, and in all
# What a line of x and a part cost, in bytes of weights that are streamed meanwhile; and how much
# quicker a worker streams at best where others do not.
LINE_BYTES, PART_BYTES, ALONE = 20000, 4096, 0.8
# At most, of K in the product of a router: of one row, and of many, which a task each adds up.
SCORE_PARTS, MANY_SCORE_PARTS = 4, 8


@dataclass(frozen=True)
class Tiles:
    """Rows of weights that one task takes, for each matrix, and into how many parts of K some of
    them are cut, which other tasks add up."""

    qkv: int
    out: int
    gate_up: int
    down: int
    head: int
    out_parts: int = 1
    down_parts: int = 1
    score_parts: int = 1
    qkv_parts: int = 1
    qkv_larger: int = 0  # tiles of `qkv` rows that come first; the others have a panel less


def tiles_for(
    c: ModelConfig, layout: Layout, many: bool = False, workers: int = H200.multiprocessors,
    rows: int = 1,
) -> Tiles:
    """On a GPU a tile a worker, as far as matrices can be cut so: each task pays for its hop and
    its fold; of experts, those of one token together. Threads take what a cache holds. The head has
    no hop: pieces without a long tail. With many rows a tile of the residual's is up to WIDE_ROWS,
    whose x the workers of a GPU read once: there are as many parts of K as give each of them a
    task. (Not of experts, whose tokens are few, and which are many together.) Parts of queries,
    keys and values are added up by who turns them; beside experts tiles are smaller, and there are
    fewer parts to add. `rows`: the least of a step."""
    qkv, hidden = (c.heads + 2 * c.kv_heads) * c.head_dim, c.hidden
    if layout == "cpu":
        return Tiles(_most(qkv, PANEL, 64), _most(hidden, PANEL, 64),
                     _most(2 * c.intermediate, 2 * PANEL, 128), _most(hidden, PANEL, 64),
                     _most(c.vocab, PANEL, 256))
    at_once = 1 if c.experts is None else c.experts.top
    first = _least(qkv, PANEL, workers)
    gate_up = _least(2 * c.intermediate, 2 * PANEL, workers // at_once)
    down = _least(hidden, PANEL, workers)
    most = MANY_SCORE_PARTS if many else SCORE_PARTS
    scores = 1 if c.experts is None else _parts(hidden, most)
    if not many:
        first, larger = _uneven(qkv, first, workers)
        return Tiles(first, _least(hidden, PANEL, workers), gate_up, down,
                     _most(c.vocab, PANEL, 16 * PANEL), score_parts=scores, qkv_larger=larger)
    out, out_parts = _added(hidden, c.heads * c.head_dim, workers, rows)
    head = _most(c.vocab, PANEL, WIDE_ROWS)
    if c.experts is not None:
        gate_up = _most(2 * c.intermediate, 2 * PANEL, WIDE_ROWS)
        first = _most(qkv, 4 * PANEL, ROUND_ROWS)
        return Tiles(first, out, gate_up, _most(hidden, PANEL, WIDE_ROWS), head, out_parts,
                     score_parts=scores,
                     qkv_parts=_parts(hidden, max(1, workers // (qkv // first))))
    first, qkv_parts = _tile_and_parts(qkv, hidden, workers) or (first, 1)
    down, down_parts = _added(hidden, c.intermediate, workers, rows)
    return Tiles(first, out, gate_up, down, head, out_parts, down_parts, qkv_parts=qkv_parts)


def bundles_for(c: ModelConfig, layout: Layout = "cuda") -> dict[str, int]:
    """For each matrix, the panels whose spans lie together on a GPU: the most that every tile has
    in whole bundles, of one row (unless no kernel takes one) and of many, since all kernels of a
    model take the same weights. A tile of one row may also be some panels of a bundle, but not of
    experts: those come all at once, and then a loader has no time for more copies."""
    few, many = tiles_for(c, "cuda"), tiles_for(c, "cuda", many=True)
    uneven = (few.qkv - PANEL,) if few.qkv_larger else ()
    rows = {"w_qkv": (many.qkv, few.qkv, *uneven), "w_o": (many.out, few.out),
            "w_gate_up": (many.gate_up, few.gate_up), "w_down": (many.down, few.down),
            "head": (many.head, few.head)}

    def fits(name: str, panels: int) -> bool:
        """Tiles of two sizes have whole bundles."""
        size, (whole, first, *rest) = panels * PANEL, rows[name]
        if layout == "cuda_many":
            return bool(whole % size == 0)
        some = size % first == 0 and not rest and (name != "w_down" or c.experts is None)
        return all(r % size == 0 for r in (whole, *rest)) and (some or first % size == 0)

    return {name: max((n for n in BUNDLES if fits(name, n)), default=1) for name in rows}


def _least(rows: int, step: int, most: int) -> int:
    """The smallest tile of which there are at most so many; else all rows."""
    sizes = range(step, rows + 1, step)
    return next((r for r in sizes if rows % r == 0 and rows // r <= most), rows)


def _uneven(rows: int, even: int, workers: int) -> tuple[int, int]:
    """Rows of a tile, and how many tiles have so many, where others may have a panel less: 0, if
    even tiles are as small."""
    panels = rows // PANEL
    most = -(-panels // workers)
    return (even, 0) if even <= most * PANEL else (most * PANEL, panels - (most - 1) * workers)


def _most(rows: int, step: int, top: int) -> int:
    """The largest tile up to a size; else all rows."""
    fit = (r for r in range(step, min(rows, top) + 1, step) if rows % r == 0)
    return max(fit, default=rows)


def _added(hidden: int, columns: int, workers: int, rows: int) -> tuple[int, int]:
    """Rows of a tile of the residual's and parts of K, as many as give each worker a task. Where
    tiles are halved, they still have whole bundles of panels."""
    def found(most: int) -> tuple[int, int]:
        tile = _most(hidden, PANEL, most)
        return tile, _parts(columns, workers // (hidden // tile))

    wide, half = found(WIDE_ROWS), found(HALF_ROWS)
    short = rows >= MANY_ROWS and columns // wide[1] < LONG_PART
    return half if short and half[1] < wide[1] and half[0] == HALF_ROWS else wide


def _tile_and_parts(rows: int, columns: int, workers: int) -> tuple[int, int] | None:
    """Rows of a tile and parts of K with which tasks, at most one for each worker, end soonest:
    they stream weights while lines of x come, anew for each ROUND_ROWS of a tile."""
    def cost(r: int, n: int) -> float:
        share = max(rows // r * n / workers, ALONE)
        lines = columns // n // PART_COLUMNS * -(-r // ROUND_ROWS)
        return max(2 * r * columns // n * share, lines * LINE_BYTES) + n * PART_BYTES

    fit = [(cost(r, n), r, n)
           for r in range(4 * PANEL, min(rows, MOST_ROWS) + 1, 4 * PANEL) if rows % r == 0
           for n in range(2, workers * r // rows + 1) if columns % (n * PART_COLUMNS) == 0]
    _, r, n = min(fit, default=(0, 0, 0))
    return (r, n) if fit else None


def _parts(columns: int, most: int) -> int:
    """The most parts of K, up to a number."""
    fit = (n for n in range(1, most + 1) if columns % (n * PART_COLUMNS) == 0)
    return max(fit, default=1)
