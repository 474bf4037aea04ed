"""Programs whose operands the loader brings: every kind of page, edges of panels and chunks, and
several streams in one task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import eventtensor as et
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.ir.plan import Plan, StreamKind
from eventtensor.llm.model.packed_layout import packed_shape
from tests.support.handoffs import copy
from tests.support.tables import product, ranked

Arrays = dict[str, np.ndarray]


@et.task
def gated(x, gate, up, scale, out):
    g = x @ gate.T
    out[:] = g * et.sigmoid(g) * (x @ up.T) * scale


def panels_shape(panels: int, k: int, bundle: int = 1) -> tuple[int, ...]:
    """Of packed panels with rows of k columns."""
    return packed_shape(16 * panels, k, "cuda", bundle)


def panels_of(w):
    bundles, spans, bundle, halves, blocks, rows, columns = w.shape
    plain = w.transpose(0, 2, 3, 5, 1, 4, 6)
    return plain.reshape(bundles * bundle * halves * rows, spans * blocks * columns).T


@et.task
def packed_product(x, w, out):
    out[:] = x @ panels_of(w)


@et.task
def scaled_product(x, w, out):
    out[:] = x @ panels_of(w) / 16.0


@et.task
def normed_product(x, ss, w, out):
    out[:] = x @ panels_of(w) * ss.sum(axis=1)[:, None]


@et.task
def joined_product(x, w, out):
    out[:] = x.reshape(x.shape[0], x.shape[1] * x.shape[2]) @ panels_of(w)


@et.task
def twice(x, w, v, out):
    """The other side of the second product is what the body has just made."""
    out[:] = x @ panels_of(w) / 16.0 + (x * 2.0).cast(et.bf16) @ panels_of(v) / 32.0


@et.task
def scaled(x, scale, out):
    out[:] = x * scale


@et.task
def column(w, x, out):
    out[:] = (w @ x[:, None])[:, 0]


def linear(
    rows: int = 32, k: int = 512, out: int = 100, dtype=et.bf16, most: int = 16
) -> et.Program:
    """A ragged number of rows of weights, tiles that end inside a panel."""
    n = et.dim("n", max=most)
    p = et.Program(f"linear_{rows}_{k}_{out}_{dtype}")
    x, w = p.input("x", (n, k), dtype), p.weight("w", (out, k), dtype)
    y = p.output("y", (n, out), et.f32)
    p.call(product, name="go", grid=(-(-out // rows),),
           reads=lambda i: (x[:, :], w[i * rows : i * rows + rows, :]),
           writes=lambda i: y[:, i * rows : i * rows + rows])
    return p


def packed(
    panels: int = 3, k: int = 1024, most: int = 8, total: int = 7, dtype=et.bf16, bundle: int = 1
) -> et.Program:
    """Panels of weights, of which the last task may have fewer; many columns go line by line."""
    some = panels // bundle
    n = et.dim("n", min=0 if most > 8 else 1, max=most)
    p = et.Program("packed")
    x = p.input("x", (n, k), dtype)
    w = p.weight("w", panels_shape(total, k, bundle), dtype)
    y = p.output("y", (n, total * 16), et.f32)
    p.call(packed_product, name="go", grid=(-(-total // panels),),
           reads=lambda i: (x[:, :], w[i * some : i * some + some, :, :, :, :, :, :]),
           writes=lambda i: y[:, i * panels * 16 : i * panels * 16 + panels * 16])
    return p


def normed(most: int, dtype: et.DType = et.f32) -> et.Program:
    """Columns have a scale, which does not need the product."""
    n = et.dim("n", max=most)
    p = et.Program("normed")
    x, ss = p.input("x", (n, 512), et.bf16), p.input("ss", (n, 16), et.f32)
    w, y = p.weight("w", panels_shape(8, 512), et.bf16), p.output("y", (n, 128), dtype)
    p.call(
        normed_product,
        name="go",
        grid=(1,),
        reads=lambda i: (x[:, :], ss[:, :], w[:, :, :, :, :, :, :]),
        writes=lambda i: y[:, :],
    )
    return p


def in_parts(
    panels: int = 4, k: int = 1024, total: int = 8, bundle: int = 2, parts: int = 2
) -> et.Program:
    """A task has some panels and a part of K: bundles lie apart."""
    n, some, each = et.dim("n", max=128), panels // bundle, panels_shape(1, k)[1] // parts
    p = et.Program("in_parts")
    x, w = p.input("x", (n, k), et.bf16), p.weight("w", panels_shape(total, k, bundle), et.bf16)
    y = p.output("y", (parts, n, total * 16), et.f32)
    p.call(packed_product, name="go", grid=(total // panels, parts),
           reads=lambda i, s: (x[:, s * (k // parts) : s * (k // parts) + k // parts],
                               w[i * some : i * some + some, s * each : s * each + each,
                                 :, :, :, :, :]),
           writes=lambda i, s: y[s, :, i * panels * 16 : i * panels * 16 + panels * 16])
    return p


def joined() -> et.Program:
    """The other side is a matrix only once its axes are joined."""
    n = et.dim("n", max=128)
    p = et.Program("joined")
    x, w = p.input("x", (2, n, 32, 16), et.bf16), p.weight("w", panels_shape(4, 512, 4), et.bf16)
    y = p.output("y", (2, n, 64), et.f32)
    p.call(joined_product, name="go", grid=(2,),
           reads=lambda i: (x[i, :, :, :], w[:, :, :, :, :, :, :]), writes=lambda i: y[i, :, :])
    return p


def gathered(panels: int = 5, k: int = 512, total: int = 8) -> et.Program:
    """Columns of the other side lie where a table says."""
    n = et.dim("n", max=128)
    p = et.Program("gathered")
    x, order = p.input("x", (60, k), et.bf16), p.input("order", (n,), et.i32, bound=59)
    w, y = p.weight("w", panels_shape(total, k), et.bf16), p.output("y", (n, total * 16), et.f32)
    p.call(packed_product, name="go", grid=(-(-total // panels),),
           reads=lambda i: (x[order[:], :],
                            w[i * panels : i * panels + panels, :, :, :, :, :, :]),
           writes=lambda i: y[:, i * panels * 16 : i * panels * 16 + panels * 16])
    return p


def wide_layers(k: int = 512) -> et.Program:
    """Two products with many columns in every layer, and a hop in between."""
    n, depth = et.dim("n", max=128), et.dim("depth", max=6)
    p = et.Program("wide_layers")
    first = p.input("first", (n, k), et.bf16)
    w = p.weight("w", (depth, *panels_shape(k // 16, k, 2)), et.bf16)
    h = p.scratch("h", (depth + 1, n, k), et.bf16)
    last = p.output("last", (n, k), et.bf16)
    p.call(copy, name="take", grid=(), reads=lambda: first[:, :], writes=lambda: h[0, :, :])
    with p.loop("l", depth) as at:
        p.call(twice, name="layer", grid=(k // 64,),
               reads=lambda i: (h[at, :, :], w[at, i * 2 : i * 2 + 2, :, :, :, :, :, :],
                                w[at, :2, :, :, :, :, :, :]),
               writes=lambda i: h[at + 1, :, i * 64 : i * 64 + 64])
    p.call(copy, name="give", grid=(), reads=lambda: h[depth, :, :], writes=lambda: last[:, :])
    return p


def told_twice(k: int = 512) -> et.Program:
    """A product with many columns that notifies two events; of each hears another."""
    n = et.dim("n", max=128)
    p = et.Program("told_twice")
    x, w = p.input("x", (n, k), et.bf16), p.weight("w", panels_shape(k // 16, k, 4), et.bf16)
    y, events = p.scratch("y", (n, k), et.f32), [p.events(e, ()) for e in ("one", "other")]
    p.call(packed_product, name="go", grid=(k // 64,),
           reads=lambda i: (x[:, :], w[i : i + 1, :, :, :, :, :, :]),
           writes=lambda i: y[:, 64 * i : 64 * i + 64],
           notifies=lambda i: tuple(e[()] for e in events))
    for event in events:
        out = p.output(f"after_{event.name}", (n, k), et.f32)
        p.call(copy, name=f"hear_{event.name}", grid=(), reads=lambda: y[:, :],
               writes=lambda out=out: out[:, :], waits=lambda event=event: event[()])
    return p


# Rows of 1 KB through memory that lasts from task to task: lanes give each other their 16 bytes.
_KEPT = """
#include "cuda/ptx/cp_async.cuh"
#include "cuda/memory/persistent_smem.cuh"
const uint32_t lane = threadIdx.x % 32, piece = threadIdx.x ^ 1;
const uint32_t* const from = reinterpret_cast<const uint32_t*>(x.data) + threadIdx.x * 4;
uint32_t* const to = reinterpret_cast<uint32_t*>(out.data) + piece * 4;
uint32_t words[4];
if (threadIdx.x < 64) {
  for (int j = 0; j < 4; ++j) words[j] = from[j];
  et::ptx::st_shared_v4(et::persistent_smem(worker) + lane * 16, words);
  __syncwarp();
  et::ptx::ld_shared_v4(et::persistent_smem(worker) + (lane ^ 1) * 16, words);
  for (int j = 0; j < 4; ++j) to[j] = words[j];
  __syncwarp();
}
"""


@et.task(cuda=et.CudaBody(_KEPT, persistent_bytes_per_warp=8 * 1024))
def kept(x, out):
    out[:] = x


def keeping(k: int = 512) -> et.Program:
    """Products with many columns, and between them tasks to which the ring lends pages."""
    n, depth = et.dim("n", max=128), et.dim("depth", max=6)
    p = et.Program("keeping")
    first = p.input("first", (n, k), et.bf16)
    w = p.weight("w", (depth, *panels_shape(k // 16, k, 2)), et.bf16)
    h, kept_h = p.scratch("h", (depth + 1, n, k), et.bf16), p.scratch("g", (depth, n, k), et.bf16)
    last = p.output("last", (n, k), et.bf16)
    p.call(copy, name="take", grid=(), reads=lambda: first[:, :], writes=lambda: h[0, :, :])
    with p.loop("l", depth) as at:
        p.call(kept, name="keep", grid=(n,), reads=lambda t: h[at, t, :],
               writes=lambda t: kept_h[at, t, :])
        p.call(scaled_product, name="layer", grid=(k // 64,),
               reads=lambda i: (kept_h[at, :, :], w[at, i * 2 : i * 2 + 2, :, :, :, :, :, :]),
               writes=lambda i: h[at + 1, :, i * 64 : i * 64 + 64])
    p.call(copy, name="give", grid=(), reads=lambda: h[depth, :, :], writes=lambda: last[:, :])
    return p


def layers(k: int = 256) -> et.Program:
    """Two streams a task in a loop, and a hop in between."""
    n, depth = et.dim("n", max=8), et.dim("depth", max=6)
    p = et.Program("layers")
    first = p.input("first", (n, k), et.bf16)
    gate, up = (p.weight(name, (depth, k, k), et.bf16) for name in ("gate", "up"))
    scale = p.weight("scale", (depth, k), et.f32)
    h = p.scratch("h", (depth + 1, n, k), et.bf16)
    last = p.output("last", (n, k), et.f32)
    p.call(scaled, name="take", grid=(), reads=lambda: (first[:, :], scale[0, :]),
           writes=lambda: h[0, :, :])
    with p.loop("l", depth) as at:
        p.call(gated, name="layer", grid=(k // 32,),
               reads=lambda i: (
                   h[at, :, :], gate[at, i * 32 : i * 32 + 32, :], up[at, i * 32 : i * 32 + 32, :],
                   scale[at, i * 32 : i * 32 + 32]),
               writes=lambda i: h[at + 1, :, i * 32 : i * 32 + 32])
    p.call(scaled, name="give", grid=(), reads=lambda: (h[depth, :, :], scale[0, :]),
           writes=lambda: last[:, :])
    return p


def state() -> et.Program:
    """A state that is read by the stream before the same launch writes it."""
    p = et.Program("state")
    x, m = p.input("x", (512,), et.bf16), p.state("m", (64, 512), et.bf16)
    fresh, y = p.input("fresh", (64, 512), et.bf16), p.output("y", (64,), et.f32)
    p.call(column, name="use", grid=(4,), reads=lambda i: (m[i * 16 : i * 16 + 16, :], x[:]),
           writes=lambda i: y[i * 16 : i * 16 + 16])
    p.call(copy, name="renew", grid=(64,), reads=lambda i: fresh[i, :], writes=lambda i: m[i, :])
    return p


@et.task
def by_chunks(w, x, scale, out):
    total = et.zeros((16, x.shape[0]), et.f32)
    for c in et.range(4):
        part = slice(c * 256, c * 256 + 256)
        total[:] = total + w[:, part] @ x[:, part].T
    out[:] = total.T * scale


@et.task
def two_walks(a, b, out):
    total = et.zeros((32,), et.f32)
    for c in et.range(6):
        total[:] = total + a[c, :, :].sum(0) * b[c, :].sum()
    out[:] = total


def chunked() -> et.Program:
    """A loop that takes a page of weights an iteration, and waits for a chunk of x in each."""
    n = et.dim("n", max=8)
    p = et.Program("chunked")
    first, w = p.input("first", (n, 1024), et.bf16), p.weight("w", (64, 1024), et.bf16)
    scale = p.weight("scale", (64,), et.f32)
    x, y = p.scratch("x", (n, 1024), et.bf16), p.output("y", (n, 64), et.f32)
    p.call(copy, name="take", grid=(4,), reads=lambda i: first[:, i * 256 : i * 256 + 256],
           writes=lambda i: x[:, i * 256 : i * 256 + 256])
    p.call(by_chunks, name="go", grid=(4,),
           reads=lambda i: (w[i * 16 : i * 16 + 16, :], x[:, :], scale[i * 16 : i * 16 + 16]),
           writes=lambda i: y[:, i * 16 : i * 16 + 16])
    return p


def walks() -> et.Program:
    """Two operands walked by one loop: their pages alternate."""
    p = et.Program("walks")
    a = p.weight("a", (5, 6, 16, 32), et.f32)
    b, y = p.weight("b", (5, 6, 512), et.f32), p.output("y", (5, 32), et.f32)
    p.call(two_walks, name="go", grid=(5,), reads=lambda i: (a[i, :, :, :], b[i, :, :]),
           writes=lambda i: y[i, :])
    return p


# name: (program, dims of some launches)
PROGRAMS: dict[str, tuple[Callable[[], et.Program], list[dict[str, int]]]] = {
    "linear": (linear, [{"n": k} for k in (1, 16, 7, 9)]),
    "linear_f16": (lambda: linear(dtype=et.f16), [{"n": 3}, {"n": 16}]),
    "one_panel": (lambda: linear(16, 96, 48), [{"n": 5}, {"n": 1}]),
    "tail": (lambda: linear(16, 1056, 20, most=8), [{"n": 2}, {"n": 7}]),
    "many_panels": (lambda: linear(80, 128, 200), [{"n": 8}, {"n": 15}]),
    "packed": (packed, [{"n": 1}, {"n": 8}]),
    "packed_small": (lambda: packed(1, 256), [{"n": 3}]),
    "packed_pairs": (lambda: packed(4, 2048, 8, 6, et.f16, 2), [{"n": 1}, {"n": 5}]),
    "packed_fours": (lambda: packed(8, 1152, 8, 12, bundle=4), [{"n": 1}, {"n": 8}]),
    "wide": (lambda: packed(most=128), [{"n": k} for k in (1, 40, 9, 3, 128)]),
    "wide_one": (lambda: packed(1, 2048, 128, 2), [{"n": k} for k in (5, 2, 64, 33)]),
    "wide_many": (lambda: packed(8, 864, 128, 12, et.f16), [{"n": k} for k in (12, 77, 1)]),
    "wide_pages": (lambda: packed(2, 2400, 128, 3), [{"n": k} for k in (64, 20, 4)]),
    "wide_short": (lambda: packed(16, 512, 128, 16), [{"n": k} for k in (50, 17)]),
    "wide_fours": (lambda: packed(12, 768, 128, 20, bundle=4), [{"n": k} for k in (70, 1, 16)]),
    "wide_parts": (in_parts, [{"n": k} for k in (40, 3)]),
    "wide_joined": (joined, [{"n": 3}, {"n": 21}]),
    "wide_gathered": (gathered, [{"n": k} for k in (70, 5, 16)]),
    "wide_layers": (wide_layers, [{"n": 24, "depth": 3}, {"n": 2, "depth": 1},
                                  {"n": 65, "depth": 2}]),
    "layers": (layers, [{"n": 1, "depth": 1}, {"n": 8, "depth": 6}, {"n": 3, "depth": 2}]),
    "state": (state, [{}, {}]),
    "chunked": (chunked, [{"n": 1}, {"n": 8}, {"n": 5}]),
    "walks": (walks, [{}]),
    "ranked": (ranked, [{}, {}, {}]),
}


def plan_of(program: et.Program, **options: Any) -> Plan:
    state = run_passes(program, Options(target="cuda", **options))
    assert state.plan is not None and state.report is not None and state.report.ok
    return state.plan


def kinds(plan: Plan) -> dict[tuple[str, str], StreamKind]:
    """Of what the loader brings, by call and tensor."""
    call = plan.program.call
    return {(s.call, call(s.call).regions[s.arg].tensor): s.kind for s in plan.streams}
