"""Small programs whose tasks can read something before they have waited for all."""

from __future__ import annotations

import eventtensor as et


@et.task
def copy(x, out):
    out[:] = x


@et.task
def scale(x, gain, out):
    out[:] = x * gain


@et.task
def total(x, y, gain, out):
    out[:] = (x.sum(axis=0) + y.sum(axis=0)) * gain


def planned() -> et.Program:
    """`plan` decides which row a task uses; `make` makes the rows."""
    n = et.dim("n", max=64)
    p = et.Program("planned")
    a, gain = p.input("a", (n, 4), et.f32), p.weight("gain", (2, 4), et.f32)
    order = p.input("order", (n,), et.i32, bound=n - 1)
    which = p.scratch("which", (n,), et.i32, bound=n - 1)
    x, o = p.scratch("x", (n, 4), et.f32), p.output("o", (n, 4), et.f32)
    p.call(copy, name="plan", grid=(), reads=lambda: order[:], writes=lambda: which[:])
    p.call(copy, name="make", grid=(n,), reads=lambda i: a[i, :], writes=lambda i: x[i, :])
    p.call(scale, name="use", grid=(n,), reads=lambda i: (x[which[i], :], gain[1, :]),
           writes=lambda i: o[i, :])
    return p


def chosen() -> et.Program:
    """Every task decides a row of its own."""
    n = et.dim("n", max=64)
    p = et.Program("chosen")
    order = p.input("order", (n,), et.i32, bound=n - 1)
    which = p.scratch("which", (n,), et.i32, bound=n - 1)
    a, o = p.input("a", (n, 4), et.f32), p.output("o", (n, 4), et.f32)
    p.call(copy, name="plan", grid=(n,), reads=lambda i: order[i], writes=lambda i: which[i])
    p.call(copy, name="use", grid=(n,), reads=lambda i: a[which[i], :], writes=lambda i: o[i, :])
    return p


def layered() -> et.Program:
    """A plan for every layer, with an axis for it."""
    depth, n = et.dim("depth", max=8), et.dim("n", max=64)
    p = et.Program("layered")
    order = p.input("order", (depth, n), et.i32, bound=n - 1)
    which = p.scratch("which", (depth, n), et.i32, bound=n - 1)
    a = p.input("a", (n, 4), et.f32)
    x, o = p.scratch("x", (depth, n, 4), et.f32), p.output("o", (depth, n, 4), et.f32)
    with p.loop("l", depth) as at:
        p.call(copy, name="plan", grid=(), reads=lambda: order[at, :], writes=lambda: which[at, :])
        p.call(copy, name="make", grid=(n,), reads=lambda i: a[i, :], writes=lambda i: x[at, i, :])
        p.call(copy, name="use", grid=(n,), reads=lambda i: x[at, which[at, i], :],
               writes=lambda i: o[at, i, :])
    return p


def paged() -> et.Program:
    """Rows of a state at places that an input tells, guarded by a task that changes one of them."""
    n, pages = et.dim("n", max=64), et.dim("pages", max=64)
    p = et.Program("paged")
    a, table = p.input("a", (4,), et.f32), p.input("table", (n, 3), et.i32, bound=pages - 1)
    slot = p.input("slot", (1,), et.i32, bound=pages - 1)
    kv, o = p.state("kv", (pages, 2, 4), et.f32), p.output("o", (n, 3, 2, 4), et.f32)
    p.call(copy, name="change", grid=(), reads=lambda: a[:], writes=lambda: kv[slot[0], 1, :])
    p.call(copy, name="use", grid=(n,), reads=lambda i: kv[table[i, :], :, :],
           writes=lambda i: o[i, :, :, :])
    return p


def residual(words: int = 700, few: int = 5, dtype=et.f32) -> et.Program:
    """Two operands by words, of sizes that no number of threads divides, and a small one."""
    p = et.Program("residual")
    a, b = p.input("a", (words, 8), dtype), p.input("b", (few, 8), et.f32)
    gain = p.weight("gain", (8,), et.f32)
    x, y = p.scratch("x", (words, 8), dtype), p.scratch("y", (few, 8), et.f32)
    o = p.output("o", (3, 8), et.f32)
    p.call(copy, name="some", grid=(few,), reads=lambda i: b[i, :], writes=lambda i: y[i, :])
    p.call(copy, name="many", grid=(4,), reads=lambda i: a[i * 175 : i * 175 + 175, :],
           writes=lambda i: x[i * 175 : i * 175 + 175, :])
    p.call(total, name="use", grid=(3,), reads=lambda i: (x[:, :], y[:, :], gain[:]),
           writes=lambda i: o[i, :])
    return p


def odd() -> et.Program:
    """An odd number of words."""
    p = et.Program("odd")
    a, gain = p.input("a", (7,), et.f32), p.weight("gain", (7,), et.f32)
    x, o = p.scratch("x", (7,), et.f32), p.output("o", (3, 7), et.f32)
    p.call(copy, name="make", grid=(), reads=lambda: a[:], writes=lambda: x[:])
    p.call(scale, name="use", grid=(3,), reads=lambda i: (x[:], gain[:]), writes=lambda i: o[i, :])
    return p


def shifted(size: int = 600) -> et.Program:
    """A task that moves a state by one place."""
    p = et.Program("shifted")
    h = p.state("h", (size + 1,), et.f32)
    p.call(copy, name="use", grid=(), reads=lambda: h[0:size], writes=lambda: h[1 : size + 1])
    return p


def several(size: int = 600) -> et.Program:
    """Three results of one value, and a fourth that reads it elsewhere."""
    p = et.Program("several")
    a = p.input("a", (size,), et.f32)
    out = [p.output(name, (size,), et.f32) for name in ("o", "q", "r", "s")]

    @et.task
    def spread(x, o, q, r, s):
        y = x * 2.0 + 1.0
        o[:] = y
        q[:] = y * y
        z = y[0:300] + y[300:600]
        r[0:300] = z
        r[300:600] = z
        s[:] = y

    p.call(spread, name="use", grid=(), reads=lambda: a[:],
           writes=lambda: tuple(t[:] for t in out))
    return p


def word_by_word(dtype=et.f32) -> et.Program:
    """Neighbouring words that several tasks make."""
    p = et.Program("word_by_word")
    a, x = p.input("a", (16,), dtype), p.scratch("x", (16,), dtype)
    o = p.output("o", (3, 16), dtype)
    p.call(copy, name="make", grid=(16,), reads=lambda i: a[i], writes=lambda i: x[i])
    p.call(copy, name="use", grid=(3,), reads=lambda i: x[:], writes=lambda i: o[i, :])
    return p


def normed() -> et.Program:
    """A product by pages, of words, and a scale from other words."""
    p = et.Program("normed")
    a, b = p.input("a", (1, 512), et.bf16), p.input("b", (8,), et.f32)
    w = p.weight("w", (96, 512), et.bf16)
    x, ss = p.scratch("x", (1, 512), et.bf16), p.scratch("ss", (8,), et.f32)
    o = p.output("o", (1, 96), et.f32)

    @et.task
    def scaled(x, ss, w, out):
        out[:] = (x @ w.T) * ss.sum()

    p.call(copy, name="make", grid=(4,), reads=lambda i: a[:, i * 128 : i * 128 + 128],
           writes=lambda i: x[:, i * 128 : i * 128 + 128])
    p.call(copy, name="sums", grid=(8,), reads=lambda i: b[i], writes=lambda i: ss[i])
    p.call(
        scaled,
        name="use",
        grid=(3,),
        reads=lambda i: (x[:, :], ss[:], w[i * 32 : i * 32 + 32, :]),
        writes=lambda i: o[:, i * 32 : i * 32 + 32],
    )
    return p
