"""Packs weights in the order in which a kernel streams them: panels of 16 rows.

`cpu`: (panels, K, 16), so that 16 outputs lie side by side. `cuda`: (bundles of panels, spans of K,
panels of a bundle, halves, K / 8 of a span, 8, 8), blocks of 8 by 8 in the layout of tensor cores.
Neighbouring spans of a bundle are one piece of memory, and the halves of its panels have a constant
distance. tile_sizes.py decides the panels of a bundle. Every array is filled in place, layer by
layer, so there are never two copies of a model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal, assert_never

import numpy as np

from ...errors import BadPacking
from ...ir.products import BLOCK, PANEL, span_of
from ..model.model_config import ModelConfig
from ..model.tile_sizes import Layout, bundles_for
from .checkpoint import Array, Checkpoint, Shape

Progress = Callable[[str, int, int], None]  # name of the array, bytes done, bytes in all
Allocate = Callable[[str, Shape, np.dtype], Array]

_SLAB = 1 << 20  # elements to cast and move at once, within a cache


@dataclass(frozen=True)
class Matrix:
    """A packed matrix of the model, of each layer or of each expert of a layer. Its `sources` are
    interleaved in `rounds` rounds, with an equal part of each source in a round. On a GPU `bundle`
    panels lie together, span by span."""

    rows: int
    columns: int
    sources: tuple[str, ...]
    rounds: int
    of: Literal["model", "layer", "expert"] = "layer"
    bundle: int = 1


def matrices(c: ModelConfig, layout: Layout = "cuda") -> dict[str, Matrix]:
    wide, narrow = c.heads * c.head_dim, c.kv_heads * c.head_dim
    down, experts = c.hidden // PANEL, c.experts
    mlp: Literal["layer", "expert"] = "layer" if experts is None else "expert"
    router = {} if experts is None else {
        "w_router": Matrix(experts.count, c.hidden, ("router",), experts.count // PANEL)}
    found = {
        # For each KV head: its query heads, the key and the value.
        "w_qkv": Matrix(wide + 2 * narrow, c.hidden, ("wq", "wk", "wv"), c.kv_heads),
        "w_o": Matrix(c.hidden, wide, ("wo",), down),
        **router,
        # A panel of gates, then the panel of the same channels, so that one task has both.
        "w_gate_up": Matrix(2 * c.intermediate, c.hidden, ("w_gate", "w_up"),
                            c.intermediate // PANEL, mlp),
        "w_down": Matrix(c.hidden, c.intermediate, ("w_down",), down, mlp),
        "head": Matrix(c.vocab, c.hidden, ("head",), c.vocab // PANEL, "model"),
    }
    bundles = bundles_for(c, layout)
    return found | {name: replace(found[name], bundle=n) for name, n in bundles.items()}


def packed_shape(rows: int, columns: int, layout: Layout, bundle: int = 1) -> Shape:
    """The shape of a packed matrix. `bundle`: panels, for a GPU."""
    multiple = PANEL * (1 if layout == "cpu" else bundle)
    if rows % multiple:
        raise BadPacking(f"a matrix has {rows} rows, not a multiple of {multiple}")
    match layout:
        case "cpu":
            return (rows // PANEL, columns, PANEL)
        case "cuda" | "cuda_many":
            if columns % BLOCK:
                raise BadPacking(f"a row has {columns} columns, not a multiple of {BLOCK}")
            span = span_of(columns)
            return (rows // multiple, columns // span, bundle, PANEL // BLOCK, span // BLOCK, BLOCK,
                    BLOCK)
        case _:
            assert_never(layout)


def packed_rows(w: Any, bundle: int = 1) -> Any:
    """Packs matrices (.., rows, columns) of NumPy or torch for a GPU."""
    *ahead, rows, columns = w.shape
    bundles, spans, _, halves, blocks, *_ = packed_shape(rows, columns, "cuda", bundle)
    split = w.reshape(*ahead, bundles, bundle, halves, BLOCK, spans, blocks, BLOCK)
    return split.swapaxes(-3, -2).swapaxes(-4, -2).swapaxes(-5, -4).swapaxes(-6, -5)


def plain_rows(w: Any) -> Any:
    """The inverse of packed_rows."""
    *ahead, bundles, spans, bundle, _, blocks, _, _ = w.shape
    split = w.swapaxes(-6, -5).swapaxes(-5, -4).swapaxes(-4, -2).swapaxes(-3, -2)
    return split.reshape(*ahead, bundles * bundle * PANEL, spans * blocks * BLOCK)


def packed_shapes(c: ModelConfig, layout: Layout) -> dict[str, Shape]:
    """The shapes of all arrays of `pack_weights`."""
    norms: dict[str, Shape] = {"norms": (c.layers, 2, c.hidden), "final_norm": (c.hidden,)}
    if c.qk_norm:
        norms["qk_norms"] = (c.layers, 2, c.head_dim)
    out = {"embed": (c.vocab, c.hidden), **norms}
    for name, m in matrices(c, layout).items():
        try:
            shape = packed_shape(m.rows, m.columns, layout, m.bundle)
        except BadPacking as e:
            raise BadPacking(f"{name}: {e.message}") from None
        out[name] = (*stack_shape(c, m), *shape)
    return out


def stack_shape(c: ModelConfig, m: Matrix) -> Shape:
    """The axes before those of the packed matrix."""
    match m.of:
        case "model":
            return ()
        case "layer":
            return (c.layers,)
        case "expert":
            assert c.experts is not None
            return c.layers, c.experts.count
        case _:
            assert_never(m.of)


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
