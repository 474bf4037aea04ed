"""Programs in which workers of a cluster take parts of sums from each other."""

from __future__ import annotations

from typing import Any

import numpy as np

import eventtensor as et
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.ir.plan import Plan
from eventtensor.models.pack import plain_rows

from .handoffs import copy
from .streams import packed_product, panels_shape

Arrays = dict[str, np.ndarray]


def some(i: Any, each: int) -> slice:
    return slice(i * each, i * each + each)


def share(i: Any, each: int, total: Any) -> slice:
    """The same of so many, which may end before."""
    return slice(et.min(i * each, total), et.min(i * each + each, total))


def clustered(program: et.Program, **options: Any) -> Plan:
    """A plan in which `take` takes from the cluster what `make` makes, or with other options."""
    how = {"schedule": "static:round_robin", "handoff": (("make_done", "cluster"),)} | options
    state = run_passes(program, Options(target="cuda", **how))
    assert state.plan is not None and state.report is not None and state.report.ok, state.report
    return state.plan


@et.task
def scale(x, h, out):
    out[:] = x * h


@et.task
def add_parts(parts, h, out):
    out[:] = parts.sum(axis=0) + h


@et.task
def add_and_round(parts, h, out, x):
    total = parts.sum(axis=0) + h
    out[:] = total
    x[:] = total.cast(et.bf16)


def scaled_parts(
    tokens: int = 8, members: int = 4, columns: int = 64, each: int = 16, first_axis: bool = True
) -> et.Program:
    """Members scale rows by one of so many factors each, and add up some rows each."""
    T = et.dim("T", min=1, max=tokens)
    layers = 3
    p = et.Program("scaled_parts")
    x = p.input("x", (members, T, columns), et.f32)
    shape = (layers, members, T, columns) if first_axis else (layers, T, members, columns)
    part = p.scratch("part", shape, et.f32)
    h = p.scratch("h", (layers + 1, T, columns), et.f32)
    o = p.output("o", (T, columns), et.f32)
    own = tokens // members

    def parts(at: Any, s: Any, rows: slice, i: Any) -> Any:
        return part[at, s, rows, some(i, each)] if first_axis else part[at, rows, s, some(i, each)]

    @et.task
    def add_inner(parts, h, out):
        out[:] = parts.sum(axis=1) + h

    p.call(copy, name="begin", grid=(T,), reads=lambda t: x[0, t, :], writes=lambda t: h[0, t, :])
    with p.loop("l", layers) as at:
        p.call(scale, name="make", grid=(columns // each, members),
               reads=lambda i, s: (x[s, :, some(i, each)], h[at, :, some(i, each)]),
               writes=lambda i, s: parts(at, s, slice(None), i))
        p.call(add_parts if first_axis else add_inner, name="take",
               grid=(columns // each, members),
               reads=lambda i, s: (parts(at, slice(None), share(s, own, T), i),
                                   h[at, share(s, own, T), some(i, each)]),
               writes=lambda i, s: h[at + 1, share(s, own, T), some(i, each)])
    p.call(copy, name="end", grid=(T,), reads=lambda t: h[layers, t, :],
           writes=lambda t: o[t, :])
    return p


def scaled_parts_arrays(
    tokens: int, members: int = 4, columns: int = 64
) -> tuple[Arrays, np.ndarray]:
    """Arguments, and what comes out, in float64."""
    x = np.random.default_rng(tokens).standard_normal((members, tokens, columns)) / 2
    x = x.astype(np.float32)
    h = x[0].astype(np.float64)
    for _ in range(3):
        h = (x * h).sum(axis=0) + h
    return {"x": x, "o": np.full((tokens, columns), np.nan, np.float32)}, h


HIDDEN, LAYERS, TILE = 512, 2, 64


def split_product(tokens: int = 64, tile: int = TILE) -> et.Program:
    """Layers of a product with packed weights, in tiles of so many rows and four parts of K, that
    are added to a residual."""
    T = et.dim("T", min=1, max=tokens)
    p = et.Program("split_product")
    first = p.input("first", (T, HIDDEN), et.f32)
    w = p.weight("w", (LAYERS, *panels_shape(HIDDEN // 16, HIDDEN)), et.bf16)
    part = p.scratch("part", (LAYERS, 4, T, HIDDEN), et.f32)
    h = p.scratch("h", (LAYERS + 1, T, HIDDEN), et.f32)
    x = p.scratch("x", (LAYERS + 1, T, HIDDEN), et.bf16)
    o = p.output("o", (T, HIDDEN), et.f32)
    own, panels, span = tokens // 4, tile // 16, HIDDEN // 4

    @et.task
    def both(x, out, rounded):
        out[:] = x
        rounded[:] = x.cast(et.bf16)

    p.call(both, name="begin", grid=(T,), reads=lambda t: first[t, :],
           writes=lambda t: (h[0, t, :], x[0, t, :]))
    with p.loop("l", LAYERS) as at:
        p.call(packed_product, name="make", grid=(HIDDEN // tile, 4),
               reads=lambda i, s: (x[at, :, some(s, span)],
                                   w[at, some(i, panels), s : s + 1, :, :, :, :, :]),
               writes=lambda i, s: part[at, s, :, some(i, tile)])
        p.call(add_and_round, name="take", grid=(HIDDEN // tile, 4),
               reads=lambda i, s: (part[at, :, share(s, own, T), some(i, tile)],
                                   h[at, share(s, own, T), some(i, tile)]),
               writes=lambda i, s: (h[at + 1, share(s, own, T), some(i, tile)],
                                    x[at + 1, share(s, own, T), some(i, tile)]))
    p.call(copy, name="end", grid=(T,), reads=lambda t: h[LAYERS, t, :],
           writes=lambda t: o[t, :])
    return p


def split_product_arrays(tokens: int) -> tuple[Arrays, np.ndarray]:
    rng = np.random.default_rng(tokens)
    first = rng.standard_normal((tokens, HIDDEN)).astype(np.float32)
    shape = (LAYERS, *panels_shape(HIDDEN // 16, HIDDEN))
    w = (rng.standard_normal(shape) / 16).astype(et.bf16.numpy)
    h = first
    for layer in w:
        x = h.astype(et.bf16.numpy).astype(np.float64)
        h = (x @ plain_rows(layer.astype(np.float64)).T + h).astype(np.float32)
    return {"first": first, "w": w, "o": np.full((tokens, HIDDEN), np.nan, np.float32)}, h


@et.task
def bump(parts, x, out):
    """Takes nothing of what it names."""
    out[:] = x + 1.0


def order_alone() -> et.Program:
    """What the taker changes the makers have read: it has to wait although it needs no values."""
    p = et.Program("order_alone")
    x, first = p.input("x", (4, 8, 256), et.f32), p.input("first", (8, 256), et.f32)
    h, part = p.scratch("h", (8, 256), et.f32), p.scratch("part", (4, 8, 256), et.f32)
    o, z = p.output("o", (4, 8, 256), et.f32), p.output("z", (8, 256), et.f32)

    @et.task
    def scale_twice(x, h, out, again):
        out[:] = x * h
        again[:] = x * h

    p.call(copy, name="begin", grid=(8,), reads=lambda t: first[t, :], writes=lambda t: h[t, :])
    p.call(scale_twice, name="make", grid=(4, 4),
           reads=lambda i, s: (x[s, :, some(i, 64)], h[:, some(i, 64)]),
           writes=lambda i, s: (part[s, :, some(i, 64)], o[s, :, some(i, 64)]))
    p.call(bump, name="take", grid=(4, 4),
           reads=lambda i, s: (part[:, some(s, 2), some(i, 64)], x[0, some(s, 2), some(i, 64)]),
           writes=lambda i, s: h[some(s, 2), some(i, 64)])
    p.call(copy, name="end", grid=(8,), reads=lambda t: h[t, :], writes=lambda t: z[t, :])
    return p


@et.task
def slow(x, out):
    y = x * 1.0
    for _ in et.range(200):
        y[:] = y * 1.0
    out[:] = y


@et.task
def summed(both, parts, out):
    out[:] = parts.sum(axis=0) + both.sum(axis=0).sum(axis=0)


def made_for_the_makers() -> et.Program:
    """The taker copies in bulk what is there because the makers have waited for it."""
    p = et.Program("made_for_the_makers")
    x, y = p.input("x", (2, 4, 16), et.f32), p.input("y", (8, 16), et.f32)
    both, part = p.scratch("both", (2, 4, 16), et.f32), p.scratch("part", (4, 8, 16), et.f32)
    o = p.output("o", (8, 16), et.f32)

    @et.task
    def add_row(b, y, out):
        out[:] = y + b

    p.call(copy, name="quick", grid=(4,), reads=lambda s: x[0, s, :],
           writes=lambda s: both[0, s, :])
    p.call(slow, grid=(4,), reads=lambda s: x[1, s, :], writes=lambda s: both[1, s, :])
    p.call(add_row, name="make", grid=(4,), reads=lambda s: (both[1, s, :], y[:, :]),
           writes=lambda s: part[s, :, :])
    p.call(summed, name="take", grid=(4,),
           reads=lambda s: (both[:, :, :], part[:, some(s, 2), :]),
           writes=lambda s: o[some(s, 2), :])
    return p
