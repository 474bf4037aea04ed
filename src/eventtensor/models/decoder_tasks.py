"""The task kinds of a decoder, and how its weights lie. Sums are f32; what goes between tasks has
the dtype of the weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import eventtensor as et

from ..errors import BadPacking
from ..ir.products import PANEL
from .model_config import ModelConfig
from .tile_sizes import Layout
from .weight_packing import matrices, packed_shapes

# ---- weights ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Matrix:
    """A weight of `rows` outputs, of which its first axis has `bundle_rows` at an index; [layer,
    tile, rows of a tile] is a region, with all axes ahead of those of the matrix in place of layer
    (none, or layer and expert): whole bundles, or some panels of one. Tiles begin at bundle
    `first`."""

    ref: Any
    rows: int
    bundle_rows: int
    first: int = 0

    def tiles(self, rows: int) -> int:
        """How many tiles of so many rows it has."""
        if (rows % self.bundle_rows and self.bundle_rows % rows) or self.rows % rows:
            raise BadPacking(
                f"{self.ref.name} has {self.rows} rows: not a number of tiles of {rows}",
                hint=f"a tile is a multiple of {self.bundle_rows} rows, or a part of them, that "
                     "divides the matrix",
            )
        return self.rows // rows

    def __getitem__(self, key: tuple[Any, ...]) -> Any:
        *ahead, tile, rows = key
        n, of = rows // self.bundle_rows, self.bundle_rows // rows
        inner = (slice(None),) * (len(self.ref.shape) - len(ahead) - 1)
        if of > 1:
            panel, panels = tile % of * (rows // PANEL), rows // PANEL
            inner = (slice(None), slice(panel, panel + panels), *inner[2:])
        at = tile * n if of <= 1 else tile // of
        return self.ref[(*ahead, slice(at + self.first, at + self.first + max(n, 1)), *inner)]

    def behind(self, rows: int) -> Matrix:
        """What comes behind so many rows."""
        return replace(self, rows=self.rows - rows, first=self.first + rows // self.bundle_rows)

    def part(self, layer: Any, tile: Any, rows: int, part: Any, parts: int) -> Any:
        """Part `part` of `parts` of the columns of a tile; more than one only on a GPU."""
        if parts == 1:
            return self[layer, tile, rows]
        n, each = rows // self.bundle_rows, int(self.ref.shape[-6]) // parts
        return self.ref[layer, tile * n : tile * n + n, part * each : part * each + each,
                        :, :, :, :, :]


@dataclass(frozen=True)
class Weights:
    """How matrices lie (weight_packing.py): in panels of 16 rows. For threads the 16 rows lie side
    by side, for a GPU in blocks of 8 by 8."""

    layout: Layout
    dtype: Any

    def matrix(self, p: et.Program, c: ModelConfig, name: str) -> Matrix:
        """One of the model's, with axes for layers, or layers and experts, ahead."""
        known = matrices(c, self.layout)[name]
        ref = p.weight(name, packed_shapes(c, self.layout)[name], self.dtype)
        return Matrix(ref, known.rows, PANEL * (1 if self.layout == "cpu" else known.bundle))

    def columns(self, w: Any) -> int:
        """How many columns a tile has."""
        return int(w.shape[1] if self.layout == "cpu" else w.shape[1] * w.shape[4] * w.shape[6])

    def product(self, x: Any, w: Any) -> Any:
        """x (tokens, columns) times the transposed tile: (tokens, rows)."""
        if self.layout == "cpu":
            return et.concat([x @ w[k] for k in range(int(w.shape[0]))], axis=1)
        rows, columns = int(w.shape[0] * w.shape[2]) * PANEL, self.columns(w)
        return x @ w.transpose(0, 2, 3, 5, 1, 4, 6).reshape(rows, columns).T


# ---- parts of bodies -------------------------------------------------------------------------


def norm_scale(ss: Any, c: ModelConfig) -> Any:
    """1 / root mean square of each row, from the sums of its tiles."""
    return et.rsqrt(ss.sum(axis=-1) / float(c.hidden) + c.norm_eps)


def _at(x: Any, column: Any) -> Any:
    """Of each row, the element in a column of its own."""
    rows, columns = x.shape
    return et.gather(x.reshape(rows * columns), et.iota(rows) * columns + column)


# ---- task kinds ------------------------------------------------------------------------------


def embed(tiles: int) -> Any:
    @et.task
    def embed(x, gain, h, out, ss):
        h[:] = x
        out[:] = x * gain
        ss[:] = (x * x).reshape(tiles, x.shape[0] // tiles).sum(axis=1)

    return embed


def project(weights: Weights, c: ModelConfig) -> Any:
    @et.task
    def project(x, ss, w, out):
        out[:] = weights.product(x, w) * norm_scale(ss, c)[:, None]

    return project


def multiply(weights: Weights) -> Any:
    """A product and nothing else."""

    @et.task
    def multiply(x, w, out):
        out[:] = weights.product(x.reshape(x.shape[0], weights.columns(w)), w)

    return multiply


def add_parts(parts: int, sums: int) -> Any:
    @et.task
    def add_parts(part, before, gain, h, out, ss):
        new = before
        for k in range(parts):
            new = new + part[k, :]
        h[:] = new
        out[:] = new * gain
        ss[:] = (new * new).reshape(sums, new.shape[0] // sums).sum(axis=1)

    return add_parts


def project_add(weights: Weights) -> Any:
    @et.task
    def project_add(x, w, before, gain, h, out, ss):
        new = before + weights.product(x.reshape(x.shape[0], weights.columns(w)), w)
        h[:] = new
        out[:] = new * gain[None, :]
        ss[:] = (new * new).sum(axis=1)

    return project_add


def gate_up(weights: Weights, c: ModelConfig) -> Any:
    @et.task
    def gate_up(x, ss, w, out):
        both = weights.product(x, w)
        scale = norm_scale(ss, c)[:, None, None]  # not before the product, which can begin without
        pairs = both.reshape(both.shape[0], both.shape[1] // (2 * PANEL), 2, PANEL)
        gate, again = pairs[:, :, 0, :] * scale, pairs[:, :, 0, :] * scale  # rather than kept
        out[:] = gate * et.sigmoid(again) * (pairs[:, :, 1, :] * scale)

    return gate_up


def head(weights: Weights, c: ModelConfig) -> Any:
    @et.task
    def head(x, ss, w, logits, best, best_at):
        rows, scale = weights.product(x, w), norm_scale(ss, c)
        logits[:] = found = rows * scale[:, None]
        at = et.argmax(found)
        best[:], best_at[:] = _at(rows, at) * scale, at

    return head


def head_with_tile_max(weights: Weights, c: ModelConfig) -> Any:
    @et.task
    def head(x, ss, w, logits, best, best_at, tops):
        """`tops` are `best` again, for readers whom run-time data sends: those need an event, and
        `best` alone goes on without."""
        rows, scale = weights.product(x, w), norm_scale(ss, c)
        logits[:] = found = rows * scale[:, None]
        at = et.argmax(found)
        top = _at(rows, at) * scale
        best[:], best_at[:], tops[:] = top, at, top

    return head


def choose(rows: int) -> Any:
    @et.task
    def choose(best, best_at, chosen):
        tile = et.argmax(best)
        chosen[:] = tile * rows + et.gather(best_at, tile.reshape(1))[0]

    return choose
