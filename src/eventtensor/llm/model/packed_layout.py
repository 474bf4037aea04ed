"""How weights lie in memory for a kernel that streams them: panels of 16 rows.

`cpu`: (panels, K, 16), so that 16 outputs lie side by side. `cuda`: (bundles of panels, spans of K,
panels of a bundle, halves, K / 8 of a span, 8, 8), blocks of 8 by 8 in the layout of tensor cores.
Neighbouring spans of a bundle are one piece of memory, and the halves of its panels have a constant
distance. tile_sizes.py decides the panels of a bundle; weights/weight_packing.py fills the arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, assert_never

from ...errors import BadPacking
from ...ir.products import BLOCK, PANEL, span_of
from ..array_types import Shape
from .model_config import ModelConfig
from .tile_sizes import Layout, bundles_for


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
    router = (
        {}
        if experts is None
        else {"w_router": Matrix(experts.count, c.hidden, ("router",), experts.count // PANEL)}
    )
    found = {
        # For each KV head: its query heads, the key and the value.
        "w_qkv": Matrix(wide + 2 * narrow, c.hidden, ("wq", "wk", "wv"), c.kv_heads),
        "w_o": Matrix(c.hidden, wide, ("wo",), down),
        **router,
        # A panel of gates, then the panel of the same channels, so that one task has both.
        "w_gate_up": Matrix(
            2 * c.intermediate, c.hidden, ("w_gate", "w_up"), c.intermediate // PANEL, mlp
        ),
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
            return (
                rows // multiple,
                columns // span,
                bundle,
                PANEL // BLOCK,
                span // BLOCK,
                BLOCK,
                BLOCK,
            )
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
