"""Fills packed arrays with the weights of a checkpoint, in the layout of model/packed_layout.py.

Every array is filled in place, layer by layer, so there are never two copies of a model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from math import prod
from typing import assert_never

import numpy as np

from ...ir.products import BLOCK, PANEL
from ..array_types import Array, Progress, Shape
from ..model.model_config import ModelConfig
from ..model.packed_layout import Matrix, matrices, packed_shapes, stack_shape
from ..model.tile_sizes import Layout
from .checkpoint import Checkpoint

Allocate = Callable[[str, Shape, np.dtype], Array]

_SLAB = 1 << 20  # elements to cast and move at once, within a cache


def pack_weights(
    checkpoint: Checkpoint,
    layout: Layout,
    dtype: np.dtype,
    progress: Progress | None = None,
    allocate: Allocate = lambda name, shape, dtype: np.empty(shape, dtype),
    without: Collection[str] = (),
) -> dict[str, Array]:
    """The arrays of a model except those in `without`: matrices and the embedding in `dtype`, norms
    in f32."""
    c, dtype = checkpoint.config, np.dtype(dtype)
    wanted = {
        name: (shape, np.dtype(np.float32) if "norm" in name else dtype)
        for name, shape in packed_shapes(c, layout).items() if name not in without
    }
    total = sum(prod(s) * d.itemsize for s, d in wanted.values())
    out, done = {}, 0
    for name, (shape, kind) in wanted.items():
        array = out[name] = allocate(name, shape, kind)
        for part, sources in _parts(c, name, array):
            _fill(part, [checkpoint.tensor(s) for s in sources], layout, matrices(c).get(name))
            done += part.nbytes
            if progress is not None:
                progress(name, done, total)
    return out


def sources_of(c: ModelConfig, name: str) -> list[tuple[str, ...]]:
    """The source tensors of each piece of an array. A piece is the whole, a layer, or an expert."""
    pairs: Mapping[str, tuple[str, ...]] = {
        "norms": ("attn_norm", "mlp_norm"), "qk_norms": ("q_norm", "k_norm"),
    }
    if name in ("embed", "final_norm", "head"):
        return [(name,)]
    matrix = matrices(c).get(name)
    sources = pairs[name] if matrix is None else matrix.sources
    each = [f"layers.{k}" for k in range(c.layers)]
    if matrix is not None and matrix.of == "expert":
        assert c.experts is not None
        each = [f"{layer}.experts.{e}" for layer in each for e in range(c.experts.count)]
    return [tuple(f"{place}.{s}" for s in sources) for place in each]


def _parts(c: ModelConfig, name: str, array: Array) -> Iterator[tuple[Array, tuple[str, ...]]]:
    """The pieces of an array, and the source tensors of each."""
    sources, matrix = sources_of(c, name), matrices(c).get(name)
    ahead = len(stack_shape(c, matrix)) if matrix is not None else int(len(sources) > 1)
    yield from zip(array.reshape(len(sources), *array.shape[ahead:]), sources, strict=True)


def _fill(out: Array, sources: list[Array], layout: Layout, matrix: Matrix | None) -> None:
    """Packs the sources of a piece into `out`; arrays other than matrices are copied."""
    if matrix is None:
        out[...] = np.stack(sources) if len(sources) > 1 else sources[0]
        return
    round_panels, at = matrix.rows // PANEL // matrix.rounds, 0
    for source in sources:
        panels = len(source) // PANEL // matrix.rounds
        places = np.arange(matrix.rounds)[:, None] * round_panels + at + np.arange(panels)
        at += panels
        _move(out, places.reshape(-1), source.reshape(-1, PANEL, matrix.columns), layout)


def _move(out: Array, places: Array, panels: Array, layout: Layout) -> None:
    """Moves each panel to its place in the matrix. The cast comes first, because a cast during the
    transposition takes five times as long."""
    step = max(1, _SLAB // panels[0].size)
    for first in range(0, len(panels), step):
        slab = panels[first : first + step].astype(out.dtype, copy=False)
        own = places[first : first + step]
        match layout:
            case "cpu":
                out[own] = slab.swapaxes(1, 2)
            case "cuda" | "cuda_many":
                spans, bundle, halves, blocks = out.shape[1:5]
                split = slab.reshape(len(slab), halves, BLOCK, spans, blocks, BLOCK)
                whole = np.dtype((np.void, BLOCK * out.dtype.itemsize))  # moved as one element
                moved = split.view(whole).transpose(0, 3, 1, 4, 2, 5)
                out.view(whole)[own // bundle, :, own % bundle] = moved
            case _:
                assert_never(layout)
