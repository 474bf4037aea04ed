"""The task kinds of a decoder outside of attention, and the layout of its weights in a program.
Sums are f32; activations between tasks have the dtype of the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import eventtensor as et

from ...errors import BadPacking
from ...ir.products import PANEL
from .model_config import ModelConfig
from .packed_layout import matrices, packed_shapes
from .tile_sizes import Layout

# ---- weights ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Matrix:
    """A packed weight with `rows` outputs, of which an index of its first axis has `bundle_rows`.
    [layer, tile, rows of a tile] is the region of a tile. The axes before those of the matrix
    replace `layer` (none, or layer and expert)."""

    ref: Any
    rows: int
    bundle_rows: int

    def tiles(self, rows: int) -> int:
        """The number of tiles of `rows` rows."""
        if rows % self.bundle_rows or self.rows % rows:
            raise BadPacking(
                f"{self.ref.name} has {self.rows} rows: not a number of tiles of {rows}",
                hint=f"a tile is a multiple of {self.bundle_rows} rows that divides the matrix",
            )
        return self.rows // rows

    def __getitem__(self, key: tuple[Any, ...]) -> Any:
        *ahead, tile, rows = key
        n = rows // self.bundle_rows
        inner = (slice(None),) * (len(self.ref.shape) - len(ahead) - 1)
        return self.ref[(*ahead, slice(tile * n, tile * n + n), *inner)]

    def part(self, layer: Any, tile: Any, rows: int, part: Any, parts: int) -> Any:
        """Split-K part `part` of `parts` of a tile; a CPU has one part only."""
        if parts == 1:
            return self[layer, tile, rows]
        n, each = rows // self.bundle_rows, int(self.ref.shape[-6]) // parts
        return self.ref[layer, tile * n : tile * n + n, part * each : part * each + each,
                        :, :, :, :, :]


@dataclass(frozen=True)
class Weights:
    """How matrices lie (packed_layout.py): in panels of 16 rows. For threads the 16 rows lie side
    by side, for a GPU in blocks of 8 by 8."""

    layout: Layout
    dtype: Any

    def matrix(self, p: et.Program, c: ModelConfig, name: str) -> Matrix:
        """Declares a matrix of the model; axes for layers, or layers and experts, come first."""
        known = matrices(c, self.layout)[name]
        ref = p.weight(name, packed_shapes(c, self.layout)[name], self.dtype)
        return Matrix(ref, known.rows, PANEL * (1 if self.layout == "cpu" else known.bundle))

    def columns(self, w: Any) -> int:
        """The number of columns of a tile."""
        return int(w.shape[1] if self.layout == "cpu" else w.shape[1] * w.shape[4] * w.shape[6])

    def product(self, x: Any, w: Any) -> Any:
        """The product of x (tokens, columns) and the transposed tile: (tokens, rows)."""
        if self.layout == "cpu":
            return et.concat([x @ w[k] for k in range(int(w.shape[0]))], axis=1)
        rows, columns = int(w.shape[0] * w.shape[2]) * PANEL, self.columns(w)
        return x @ w.transpose(0, 2, 3, 5, 1, 4, 6).reshape(rows, columns).T


# ---- parts of bodies -------------------------------------------------------------------------


def norm_scale(ss: Any, c: ModelConfig) -> Any:
    """1 / root mean square of each token, from the sums of its tiles."""
    return et.rsqrt(ss.sum(axis=-1) / float(c.hidden) + c.norm_eps)


def _at(x: Any, column: Any) -> Any:
    """For each row the element of its own column."""
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
    """A plain product."""

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
        scale = norm_scale(ss, c)[:, None, None]  # after the product, which can start without it
        pairs = both.reshape(both.shape[0], both.shape[1] // (2 * PANEL), 2, PANEL)
        gate, twin = pairs[:, :, 0, :] * scale, pairs[:, :, 0, :] * scale  # computed, not stored
        out[:] = gate * et.sigmoid(twin) * (pairs[:, :, 1, :] * scale)

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
        """`tops` repeats `best` for readers whose indices depend on run-time data. Those need an
        event; the hand-off of `best` stays without one."""
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
