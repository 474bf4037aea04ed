"""Right programs to make faulty ones of. Tiles are small, so that small dims show everything.

Keyword arguments change one thing each (a region, a map, a count); the defaults are right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import eventtensor as et
from tests.support import bodies

T = 4
Map = Callable[..., Any]


def _slice(i: Any, t: int = T, lo: int = 0, hi: int = 0) -> slice:
    return slice(i * t - lo, i * t + t + hi)


def _n(most: int = 4096) -> Any:
    return et.dim("n", max=most)


def row_sum(
    most: int = 4096, width: int = 3, read: Map = lambda b, i: b[_slice(i), :],
    write: Map = lambda b, i, j: b[_slice(i), j],
) -> et.Program:
    n = _n(most)
    p = et.Program("row_sum")
    a = p.input("a", (n, width), et.f32)
    b, c = p.scratch("b", (n, width), et.f32), p.output("c", (n,), et.f32)
    p.call(bodies.mix1, name="part", grid=(n.tiles(T), width),
           reads=lambda i, j: a[_slice(i), j], writes=lambda i, j: write(b, i, j))
    p.call(bodies.mix1, name="final", grid=(n.tiles(T),), reads=lambda i: read(b, i),
           writes=lambda i: c[_slice(i)])
    return p


def halo(most: int = 4096, lo: int = 1, hi: int = 1, pad: int = 1, first: int = T,
         second: int = T) -> et.Program:
    n = _n(most)
    p = et.Program("halo")
    a = p.input("a", (n,), et.f32)
    b, c = p.scratch("b", (n,), et.f32), p.output("c", (n,), et.f32)
    p.call(bodies.mix1, name="blur", grid=(n.tiles(first),), reads=lambda i: a[_slice(i, first)],
           writes=lambda i: b[_slice(i, first)])
    p.call(bodies.mix1, name="edge", grid=(n.tiles(second),),
           reads=lambda i: b.padded(pad, pad, 0.0)[_slice(i, second, lo, hi)],
           writes=lambda i: c[_slice(i, second)])
    return p


def two_tiles(most: int = 4096, first: int = 4, second: int = 6, extra: int = 0) -> et.Program:
    """Tile sizes that do not divide each other; `extra` makes writers overlap or leave gaps."""
    n = _n(most)
    p = et.Program("two_tiles")
    a = p.input("a", (n,), et.f32)
    b, c = p.scratch("b", (n,), et.f32), p.output("c", (n,), et.f32)
    p.call(bodies.mix1, name="coarse", grid=(n.tiles(first),), reads=lambda i: a[_slice(i, first)],
           writes=lambda i: b[_slice(i, first, 0, extra)])
    p.call(bodies.mix1, name="fine", grid=(n.tiles(second),), reads=lambda i: b[_slice(i, second)],
           writes=lambda i: c[_slice(i, second)])
    return p


def broadcast(most: int = 4096, at: Map = lambda b, i: b[:]) -> et.Program:
    n = _n(most)
    p = et.Program("broadcast")
    a = p.input("a", (n,), et.f32)
    b, c = p.scratch("b", (5,), et.f32), p.output("c", (n,), et.f32)
    p.call(bodies.mix1, name="one", grid=(), reads=lambda: a[:], writes=lambda: b[:])
    p.call(bodies.mix1, name="many", grid=(n.tiles(T),), reads=lambda i: at(b, i),
           writes=lambda i: c[_slice(i)])
    return p


def reduction(most: int = 4096, cells: Map = lambda n: n.tiles(T)) -> et.Program:
    n = _n(most)
    p = et.Program("reduction")
    a = p.input("a", (n,), et.f32)
    b, c = p.scratch("b", (cells(n),), et.f32), p.output("c", (2,), et.f32)
    p.call(bodies.mix1, name="many", grid=(n.tiles(T),), reads=lambda i: a[_slice(i)],
           writes=lambda i: b[i])
    p.call(bodies.mix1, name="one", grid=(), reads=lambda: b[:], writes=lambda: c[:])
    return p


def two_grids(most: int = 4096, cut: int = 2, start: int = 2) -> et.Program:
    """One tensor, two producers, one consumer."""
    n = _n(most)
    p = et.Program("two_grids")
    a = p.input("a", (n,), et.f32)
    b, c = p.scratch("b", (n, 3), et.f32), p.output("c", (n,), et.f32)
    p.call(bodies.mix1, name="left", grid=(n.tiles(T),), reads=lambda i: a[_slice(i)],
           writes=lambda i: b[_slice(i), 0:cut])
    p.call(bodies.mix1, name="right", grid=(n.tiles(3),), reads=lambda i: a[_slice(i, 3)],
           writes=lambda i: b[_slice(i, 3), start:3])
    p.call(bodies.mix1, name="both", grid=(n.tiles(T),), reads=lambda i: b[_slice(i), :],
           writes=lambda i: c[_slice(i)])
    return p


def ring(
    r: int = 2, most: int = 4096, back: int = 0, chain: bool = True, second: int = 6
) -> et.Program:
    """A buffer of r copies over a loop; with `chain`, iteration l + 1 needs l."""
    n, depth = _n(most), et.dim("L", max=64)
    p = et.Program(f"ring{r}")
    x = p.state("x", (n,), et.f32)
    w = p.weight("w", (depth,), et.f32)
    b = p.scratch("b", (r, n), et.f32)
    y = p.state("y", (depth, n), et.f32)
    with p.loop("l", depth) as lv:
        p.call(bodies.mix2, name="up", grid=(n.tiles(T),), reads=lambda i: (x[_slice(i)], w[lv]),
               writes=lambda i: b[lv % r, _slice(i)])
        p.call(bodies.mix1, name="down", grid=(n.tiles(second),),
               reads=lambda i: b[(lv + back) % r, _slice(i, second)],
               writes=lambda i: x[_slice(i, second)] if chain else y[lv, _slice(i, second)])
    return p


def chain(most: int = 4096, unordered: bool = False) -> et.Program:
    """Accumulation over one coordinate, then a reader."""
    n = _n(most)
    p = et.Program("chain")
    a = p.input("a", (n, 6), et.f32)
    s, o = p.scratch("s", (6,), et.f32), p.output("o", (6,), et.f32)
    p.call(bodies.add1, name="add", grid=(n.tiles(T), 2),
           reads=lambda i, j: a[_slice(i), _slice(j, 3)],
           accumulates=lambda i, j: s[_slice(j, 3)], unordered=unordered)
    p.call(bodies.mix1, name="use", grid=(3,), reads=lambda j: s[_slice(j, 2)],
           writes=lambda j: o[_slice(j, 2)])
    return p


def triangle(most: int = 4096, grow: int = 1, upto: int = T) -> et.Program:
    n = _n(most)
    p = et.Program("triangle")
    a = p.input("a", (n,), et.f32)
    b, c = p.scratch("b", (n, n), et.f32), p.output("c", (n,), et.f32)
    p.call(bodies.mix1, name="cell", grid=(n.tiles(T), lambda i: i + grow),
           reads=lambda i, j: a[_slice(i)], writes=lambda i, j: b[_slice(i), _slice(j)])
    p.call(bodies.mix1, name="row", grid=(n.tiles(T),),
           reads=lambda i: b[_slice(i), 0 : i * T + upto], writes=lambda i: c[_slice(i)])
    return p


def substitution(most: int = 4096, less: int = 1, start: int = 1) -> et.Program:
    """Grids that shrink over a loop."""
    n = _n(most)
    p = et.Program("substitution")
    x = p.state("x", (n,), et.f32)
    nt = n.tiles(T)
    with p.loop("k", nt) as k:
        p.call(bodies.same, name="solve", grid=(), reads=lambda: x[_slice(k)],
               writes=lambda: x[_slice(k)])
        p.call(bodies.mix2, name="push", grid=(nt - k - less,),
               reads=lambda i: (x[_slice(k)], x[_slice(k + start + i)]),
               writes=lambda i: x[_slice(k + start + i)])
    return p


def cross(most: int = 4096) -> et.Program:
    """One grid of two dims, read by rows and by columns."""
    n, m = _n(most), et.dim("m", max=512)
    p = et.Program("cross")
    a = p.input("a", (n, m), et.f32)
    b = p.scratch("b", (n, m), et.f32)
    r, c = p.output("r", (n,), et.f32), p.output("c", (m,), et.f32)
    p.call(bodies.mix1, name="tile", grid=(n.tiles(T), m.tiles(3)),
           reads=lambda i, j: a[_slice(i), _slice(j, 3)],
           writes=lambda i, j: b[_slice(i), _slice(j, 3)])
    p.call(bodies.mix1, name="rows", grid=(n.tiles(T),), reads=lambda i: b[_slice(i), :],
           writes=lambda i: r[_slice(i)])
    p.call(bodies.mix1, name="cols", grid=(m.tiles(5),), reads=lambda j: b[:, _slice(j, 5)],
           writes=lambda j: c[_slice(j, 5)])
    return p


def in_place(most: int = 4096) -> et.Program:
    """Write, read by halo, overwrite, read: every kind of conflict on one tensor."""
    n = _n(most)
    p = et.Program("in_place")
    x = p.state("x", (n,), et.f32)
    y, z = p.scratch("y", (n,), et.f32), p.output("z", (n,), et.f32)
    p.call(bodies.same, name="first", grid=(n.tiles(T),), reads=lambda i: x[_slice(i)],
           writes=lambda i: x[_slice(i)])
    p.call(bodies.mix1, name="look", grid=(n.tiles(3),),
           reads=lambda i: x.padded(1, 1, 0.0)[_slice(i, 3, 1, 1)],
           writes=lambda i: y[_slice(i, 3)])
    p.call(bodies.fill, name="again", grid=(n.tiles(5),), writes=lambda i: x[_slice(i, 5)])
    p.call(bodies.mix2, name="last", grid=(n.tiles(T),),
           reads=lambda i: (x[_slice(i)], y[_slice(i)]), writes=lambda i: z[_slice(i)])
    return p


def declared(
    most: int = 4096, count: Any = 3, wait: Map = lambda e, i: e[i],
    notify: Map = lambda e, i, j: e[i], shape: Map = lambda nt: (nt,),
) -> et.Program:
    """row_sum with an event of the user's own."""
    n = _n(most)
    p = et.Program("declared")
    a = p.input("a", (n, 3), et.f32)
    b, c = p.scratch("b", (n, 3), et.f32), p.output("c", (n,), et.f32)
    e = p.events("e", shape(n.tiles(T)), count=count(n) if callable(count) else count)
    p.call(bodies.mix1, name="part", grid=(n.tiles(T), 3), reads=lambda i, j: a[_slice(i), j],
           writes=lambda i, j: b[_slice(i), j], notifies=lambda i, j: notify(e, i, j))
    p.call(bodies.mix1, name="final", grid=(n.tiles(T),), reads=lambda i: b[_slice(i), :],
           writes=lambda i: c[_slice(i)], waits=lambda i: wait(e, i))
    return p


def declared_ring(
    r: int = 2, wait_up: Map | None = None, wait_down: Map | None = None,
) -> et.Program:
    """Every edge of a ring declared: `full` by iteration, `free` for the reuse r iterations on."""
    n, depth = _n(), et.dim("L", max=64)
    p = et.Program("declared_ring")
    a = p.input("a", (n,), et.f32)
    b = p.scratch("b", (r, n), et.f32)
    y = p.output("y", (depth, n), et.f32)
    nt = n.tiles(T)
    full, free = p.events("full", (depth, nt), count=1), p.events("free", (depth, nt), count=1)
    up = wait_up or (lambda f, lv, i: f[et.max(lv - r, 0) : et.max(lv - r + 1, 0), i])
    down = wait_down or (lambda f, lv, i: f[lv, i])
    with p.loop("l", depth) as lv:
        p.call(bodies.mix1, name="up", grid=(nt,), reads=lambda i: a[_slice(i)],
               writes=lambda i: b[lv % r, _slice(i)], notifies=lambda i: full[lv, i],
               waits=lambda i: up(free, lv, i))
        p.call(bodies.mix1, name="down", grid=(nt,), reads=lambda i: b[lv % r, _slice(i)],
               writes=lambda i: y[lv, _slice(i)], waits=lambda i: down(full, lv, i),
               notifies=lambda i: free[lv, i])
    return p


def chunks(chunk: int = T, tile: int = T, most: int = 4096) -> et.Program:
    """A consumer that walks over an operand in chunks, and takes another one whole."""
    n = _n(most)
    p = et.Program("chunks")
    a = p.input("a", (n,), et.f32)
    b, c = p.scratch("b", (n,), et.f32), p.scratch("c", (3,), et.f32)
    y = p.output("y", (n,), et.f32)
    p.call(bodies.mix1, name="part", grid=(n.tiles(tile),), reads=lambda i: a[_slice(i, tile)],
           writes=lambda i: b[_slice(i, tile)])
    p.call(bodies.mix1, name="other", grid=(3,), reads=lambda i: a[:], writes=lambda i: c[i])
    p.call(bodies.walk(chunk), name="walk", grid=(n.tiles(T),), reads=lambda i: (b[:], c[:]),
           writes=lambda i: y[_slice(i)])
    return p


def chunk_layers(chunk: int = T, tile: int = T) -> et.Program:
    """Layers that read all of the one before, chunk by chunk, through one buffer."""
    n, depth = _n(), et.dim("L", max=64)
    p = et.Program("chunk_layers")
    a, x = p.input("a", (3,), et.f32), p.state("x", (n,), et.f32)
    b = p.scratch("b", (n,), et.f32)
    with p.loop("l", depth):
        p.call(bodies.mix1, name="part", grid=(n.tiles(tile),), reads=lambda i: x[_slice(i, tile)],
               writes=lambda i: b[_slice(i, tile)])
        p.call(bodies.walk(chunk), name="walk", grid=(n.tiles(T),), reads=lambda i: (b[:], a[:]),
               writes=lambda i: x[_slice(i)])
    return p


@dataclass(frozen=True)
class Base:
    """A base program and dims at which brute force looks."""

    make: Callable[..., et.Program]
    dims: tuple[dict[str, int], ...]


def _ns(*values: int) -> tuple[dict[str, int], ...]:
    return tuple({"n": v} for v in values)


def _loops(*values: tuple[int, int]) -> tuple[dict[str, int], ...]:
    return tuple({"n": n, "L": depth} for n, depth in values)


SMALL = _ns(1, 3, 4, 5, 8, 9, 13, 17)
DEEP = _loops((1, 1), (5, 1), (1, 2), (7, 2), (5, 3), (13, 4), (9, 5))

WIDE = tuple({"n": n, "m": m} for n, m in ((1, 1), (5, 4), (4, 7), (9, 2), (13, 8)))

BASES: dict[str, Base] = {
    "row_sum": Base(row_sum, SMALL),
    "halo": Base(halo, SMALL),
    "two_tiles": Base(two_tiles, SMALL),
    "broadcast": Base(broadcast, SMALL),
    "reduction": Base(reduction, SMALL),
    "two_grids": Base(two_grids, SMALL),
    "ring1": Base(lambda: ring(1), DEEP),
    "ring2": Base(lambda: ring(2), DEEP),
    "ring3": Base(lambda: ring(3, chain=False), DEEP),
    "chain": Base(chain, SMALL),
    "unordered": Base(lambda: chain(unordered=True), SMALL),
    "triangle": Base(triangle, SMALL),
    "substitution": Base(substitution, SMALL),
    "cross": Base(cross, WIDE),
    "in_place": Base(in_place, SMALL),
    "declared": Base(declared, SMALL),
    "declared_ring": Base(declared_ring, DEEP),
    "chunks": Base(chunks, SMALL),
    "chunks_of_half": Base(lambda: chunks(T // 2), SMALL[:5]),
    "chunks_of_two": Base(lambda: chunks(2 * T), SMALL[:5]),
    "chunk_layers": Base(chunk_layers, _loops((1, 1), (5, 2), (9, 3))),
}
