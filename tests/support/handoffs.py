"""Small programs for hand-offs: each makes one of them legal, or breaks one rule."""

from __future__ import annotations

import eventtensor as et


@et.task
def copy(x, out):
    out[:] = x


@et.task
def both(x, out, other):
    out[:] = x
    other[:] = x * 2.0


@et.task
def add(x, y, out):
    out[:] = x + y


@et.task
def total(x, out):
    out[:] = x + x.sum(axis=0, keepdims=True)


@et.task
def product(x, w, out):
    out[:] = x @ w


def copies_of_rows(*steps) -> et.Program:
    """A call for each step (name, source, target), a row a tile; a is given, x scratch."""
    n = et.dim("n", max=64)
    p = et.Program("copies")
    t = {name: getattr(p, role)(name, (n, 4), et.f32) for name, role in (
        ("a", "input"), ("x", "scratch"), ("o", "output"), ("q", "output"))}
    for name, source, target in steps:
        p.call(copy, name=name, grid=(n,), reads=lambda i, s=t[source]: s[i, :],
               writes=lambda i, d=t[target]: d[i, :])
    return p


def near_and_far() -> et.Program:
    """Two calls read what one has made."""
    return copies_of_rows(("make", "a", "x"), ("near", "x", "o"), ("far", "x", "q"))


def pair(first=8, second=8, role="scratch", dtype=et.f32, top=64) -> et.Program:
    """Tiles of `first` rows are written, tiles of `second` rows read."""
    n = et.dim("n", max=top)
    p = et.Program("pair")
    a = p.input("a", (n * 16, 4), dtype)
    x = getattr(p, role)("x", (n * 16, 4), dtype)
    o = p.output("o", (n * 16, 4), dtype)
    p.call(copy, name="make", grid=((n * 16).tiles(first),),
           reads=lambda i: a[i * first : i * first + first, :],
           writes=lambda i: x[i * first : i * first + first, :])
    p.call(copy, name="use", grid=((n * 16).tiles(second),),
           reads=lambda i: x[i * second : i * second + second, :],
           writes=lambda i: o[i * second : i * second + second, :])
    return p


def halo() -> et.Program:
    n = et.dim("n", max=64)
    p = et.Program("halo")
    a, x = p.input("a", (n + 1,), et.f32), p.scratch("x", (n + 1,), et.f32)
    o = p.output("o", (n,), et.f32)
    p.call(copy, name="make", grid=(n + 1,), reads=lambda i: a[i], writes=lambda i: x[i])
    p.call(add, name="use", grid=(n + 1 - 1,), reads=lambda i: (x[i], x[i + 1]),
           writes=lambda i: o[i])
    return p


def broadcast() -> et.Program:
    """One task makes a few words that a few tasks read."""
    p = et.Program("broadcast")
    a, x = p.input("a", (64,), et.f32), p.scratch("x", (64,), et.f32)
    o = p.output("o", (16, 64), et.f32)
    p.call(total, name="make", grid=(), reads=lambda: a[:], writes=lambda: x[:])
    p.call(copy, name="use", grid=(16,), reads=lambda i: x[:], writes=lambda i: o[i, :])
    return p


def layers(with_axis: bool) -> et.Program:
    depth = et.dim("depth", max=8)
    p = et.Program("layers")
    a, o = p.input("a", (depth, 64), et.f32), p.output("o", (depth, 64), et.f32)
    x = p.scratch("x", (depth, 64) if with_axis else (64,), et.f32)
    with p.loop("l", depth) as at:
        def where():
            return x[at, :] if with_axis else x[:]
        p.call(total, name="make", grid=(), reads=lambda: a[at, :], writes=lambda: where())
        p.call(total, name="use", grid=(), reads=lambda: where(), writes=lambda: o[at, :])
    return p


def overwritten() -> et.Program:
    """`use` may overwrite h only when `make` has read it."""
    p = et.Program("overwritten")
    h, x = p.state("h", (64,), et.f32), p.scratch("x", (64,), et.f32)
    p.call(total, name="make", grid=(), reads=lambda: h[:], writes=lambda: x[:])
    p.call(total, name="use", grid=(), reads=lambda: x[:], writes=lambda: h[:])
    return p


def indexed() -> et.Program:
    p = et.Program("indexed")
    a = p.input("a", (4,), et.i32, bound=(0, 7))
    x = p.scratch("x", (4,), et.i32, bound=(0, 7))
    b, o = p.input("b", (8,), et.f32), p.output("o", (4,), et.f32)
    p.call(copy, name="make", grid=(4,), reads=lambda i: a[i], writes=lambda i: x[i])
    p.call(copy, name="use", grid=(4,), reads=lambda i: b[x[i]], writes=lambda i: o[i])
    return p


def accumulated() -> et.Program:
    @et.task
    def into(v, out):
        out[:] += v

    p = et.Program("accumulated")
    a, x = p.input("a", (4, 8), et.f32), p.scratch("x", (8,), et.f32)
    o = p.output("o", (8,), et.f32)
    p.call(into, name="make", grid=(4,), reads=lambda i: a[i, :], accumulates=lambda i: x[:])
    p.call(copy, name="use", grid=(), reads=lambda: x[:], writes=lambda: o[:])
    return p


def padded() -> et.Program:
    @et.task
    def blur(v, out):
        out[:] = v.sum(axis=0, keepdims=True)

    p = et.Program("padded")
    a, x, o = p.input("a", (8,), et.f32), p.scratch("x", (8,), et.f32), p.output("o", (8,), et.f32)
    p.call(copy, name="make", grid=(8,), reads=lambda i: a[i], writes=lambda i: x[i])
    p.call(blur, name="use", grid=(8,), reads=lambda i: x.padded(1, 1, 0.0)[i - 1 : i + 2],
           writes=lambda i: o[i : i + 1])
    return p


def gathered() -> et.Program:
    p = et.Program("gathered")
    at = p.input("at", (4,), et.i32, bound=(0, 7))
    a, x = p.input("a", (8, 4), et.f32), p.scratch("x", (8, 4), et.f32)
    o = p.output("o", (4, 4), et.f32)
    p.call(copy, name="make", grid=(8,), reads=lambda i: a[i, :], writes=lambda i: x[i, :])
    p.call(copy, name="use", grid=(), reads=lambda: x[at[:], :], writes=lambda: o[:, :])
    return p


def implied(role="scratch") -> et.Program:
    """A before C on y is implied by A, B, C: the event of A and B holds two orders. What y is
    decides whether it can have flags of its own."""
    p = et.Program("implied")
    a = p.input("a", (8,), et.f32)
    x, z = (p.scratch(n, (8,), et.f32) for n in "xz")
    y, o = getattr(p, role)("y", (8,), et.f32), p.output("o", (8,), et.f32)
    p.call(both, name="A", grid=(), reads=lambda: a[:], writes=lambda: (x[:], y[:]))
    p.call(copy, name="B", grid=(), reads=lambda: x[:], writes=lambda: z[:])
    p.call(add, name="C", grid=(), reads=lambda: (z[:], y[:]), writes=lambda: o[:])
    return p


def two_ways(role="scratch") -> et.Program:
    """P before S on w is implied through Q, by x, and through R, by y; either is enough. What w is
    decides whether it can have flags of its own."""
    @et.task
    def three(v, x, y, w):
        x[:] = v
        y[:] = v
        w[:] = v

    @et.task
    def join(u, v, w, out):
        out[:] = u[0:2] + v + w

    p = et.Program("two_ways")
    a, o = p.input("a", (8,), et.f32), p.output("o", (8,), et.f32)
    x, y, u, v = (p.scratch(n, (8,), et.f32) for n in ("x", "y", "u", "v"))
    w = getattr(p, role)("w", (8,), et.f32)

    def tile(t, i):
        return t[i * 2 : i * 2 + 2]

    p.call(three, name="P", grid=(4,), reads=lambda i: tile(a, i),
           writes=lambda i: (tile(x, i), tile(y, i), tile(w, i)))
    p.call(copy, name="Q", grid=(), reads=lambda: x[:], writes=lambda: u[:])
    p.call(copy, name="R", grid=(4,), reads=lambda i: tile(y, i), writes=lambda i: tile(v, i))
    p.call(join, name="S", grid=(4,), reads=lambda i: (u[:], tile(v, i), tile(w, i)),
           writes=lambda i: tile(o, i))
    return p


def matrix(rows=16, width=64) -> et.Program:
    n = et.dim("n", max=64)
    p = et.Program("matrix")
    a, w = p.input("a", (n * rows, width), et.f32), p.weight("w", (width, 32), et.f32)
    x, o = p.scratch("x", (n * rows, width), et.f32), p.output("o", (n * rows, 32), et.f32)
    p.call(copy, name="make", grid=(n,), reads=lambda i: a[i * rows : i * rows + rows, :],
           writes=lambda i: x[i * rows : i * rows + rows, :])
    p.call(product, name="use", grid=(n, 2),
           reads=lambda i, j: (x[i * rows : i * rows + rows, :], w[:, j * 16 : j * 16 + 16]),
           writes=lambda i, j: o[i * rows : i * rows + rows, j * 16 : j * 16 + 16])
    return p


def columns() -> et.Program:
    p = et.Program("columns")
    a, x = p.input("a", (8, 64), et.f32), p.scratch("x", (8, 64), et.f32)
    o = p.output("o", (8, 64), et.f32)
    p.call(copy, name="make", grid=(8,), reads=lambda i: a[i, :], writes=lambda i: x[i, :])
    p.call(copy, name="use", grid=(4,), reads=lambda i: x[:, i * 16 : i * 16 + 16],
           writes=lambda i: o[:, i * 16 : i * 16 + 16])
    return p


def halves() -> et.Program:
    """A body that stores some elements twice."""
    @et.task
    def swap(x, out):
        out[0:32] = x[32:64]
        out[32:64] = x[0:32]
        out[0:8] = x[0:8] * 2.0

    p = et.Program("halves")
    a, x, o = (getattr(p, r)(n, (64,), et.f32) for r, n in (
        ("input", "a"), ("scratch", "x"), ("output", "o")))
    p.call(swap, name="make", grid=(), reads=lambda: a[:], writes=lambda: x[:])
    p.call(copy, name="use", grid=(), reads=lambda: x[:], writes=lambda: o[:])
    return p


def chained() -> et.Program:
    """Each step reads what the one before wrote; other calls begin and end the chain."""
    depth = et.dim("depth", max=8)
    p = et.Program("chained")
    a, o = p.input("a", (64,), et.f32), p.output("o", (64,), et.f32)
    x = p.scratch("x", (depth + 1, 64), et.f32)
    p.call(copy, name="take", grid=(), reads=lambda: a[:], writes=lambda: x[0, :])
    with p.loop("l", depth) as at:
        p.call(total, name="step", grid=(), reads=lambda: x[at, :], writes=lambda: x[at + 1, :])
    p.call(copy, name="give", grid=(), reads=lambda: x[depth, :], writes=lambda: o[:])
    return p
