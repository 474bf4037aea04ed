"""Faulty and legal programs made by hand, one change each, at the level of the language.

`kinds` is what a reader expects of the change, () for a legal one; brute force confirms it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import eventtensor as et
from tests.support import bases, bodies
from tests.support.bases import DEEP, SMALL, T

Dims = tuple[dict[str, int], ...]


@dataclass(frozen=True)
class Case:
    name: str
    make: Callable[[], et.Program]
    kinds: tuple[str, ...] = ()
    dims: Dims = SMALL


def _s(i: Any, lo: int = 0, hi: int = 0) -> slice:
    return slice(i * T - lo, i * T + T + hi)


def mutual() -> et.Program:
    """Two calls that wait for each other."""
    n = et.dim("n", max=4096)
    p = et.Program("mutual")
    x, y = p.state("x", (n,), et.f32), p.output("y", (n,), et.f32)
    nt = n.tiles(T)
    there, back = p.events("there", (nt,), count=1), p.events("back", (nt,), count=1)
    p.call(bodies.same, name="one", grid=(n.tiles(T),), reads=lambda i: x[_s(i)],
           writes=lambda i: x[_s(i)], notifies=lambda i: there[i], waits=lambda i: back[i])
    p.call(bodies.same, name="two", grid=(n.tiles(T),), reads=lambda i: x[_s(i)],
           writes=lambda i: y[_s(i)], notifies=lambda i: back[i], waits=lambda i: there[i])
    return p


def neighbour(step: int) -> et.Program:
    """Tiles of one call that read beside themselves: no event helps."""
    n = et.dim("n", max=4096)
    p = et.Program("neighbour")
    x = p.state("x", (n,), et.f32)
    p.call(bodies.mix1, name="move", grid=(n.tiles(T),),
           reads=lambda i: x.padded(T, T, 0.0)[_s(i, step, step)], writes=lambda i: x[_s(i)])
    return p


def indexed(bound: bool = True, distinct: bool = True, offset: int = 0) -> et.Program:
    """Rows go where a table says, and are read again from there."""
    n = et.dim("n", max=4096)
    p = et.Program("indexed")
    a = p.input("a", (n,), et.f32)
    facts = {"bound": n - 1 + offset} if bound else {}
    table = p.input("table", (n,), et.i32, distinct=distinct, **facts)
    b, c = p.scratch("b", (n,), et.f32), p.output("c", (n,), et.f32)
    p.call(bodies.mix1, name="put", grid=(n,), reads=lambda i: a[i], writes=lambda i: b[table[i]])
    p.call(bodies.mix1, name="get", grid=(n,), reads=lambda i: b[table[i]], writes=lambda i: c[i])
    return p


def _count(n: Any, extra: int = 0) -> Any:
    return n.tiles(T) * 3 + extra


def _row_sum() -> list[Case]:
    make = bases.row_sum
    return [
        Case("row_sum", make),
        Case("reads two tiles", lambda: make(read=lambda b, i: b[_s(i, 0, T), :])),
        Case("reads all", lambda: make(read=lambda b, i: b[:, :])),
        Case("reads one column", lambda: make(read=lambda b, i: b[_s(i), 1])),
        Case("reads before the start", lambda: make(read=lambda b, i: b[_s(i, 1), :]),
             ("out-of-range",)),
        Case("reads the next tile", lambda: make(read=lambda b, i: b[_s(i + 1), :]),
             ("out-of-range",)),
        Case("reads a column too far", lambda: make(read=lambda b, i: b[_s(i), i]),
             ("out-of-range",)),
        Case("writers overlap", lambda: make(write=lambda b, i, j: b[_s(i, 0, 1), j]),
             ("write-write",)),
        Case("writers share a column", lambda: make(write=lambda b, i, j: b[_s(i), 0]),
             ("write-write", "no-producer")),
        Case("writes one row of four", lambda: make(write=lambda b, i, j: b[i * T, j]),
             ("no-producer",)),
        Case("writes past the end", lambda: make(write=lambda b, i, j: b[i * T + 1, j]),
             ("out-of-range",)),
    ]


def _tiles() -> list[Case]:
    halo, two = bases.halo, bases.two_tiles
    return [
        Case("halo 0", lambda: halo(lo=0, hi=0)),
        Case("halo wide", lambda: halo(lo=9, hi=9, pad=9)),
        Case("halo 3 and 5", lambda: halo(first=3, second=5)),
        Case("halo 7 and 2", lambda: halo(lo=2, hi=0, pad=2, first=7, second=2)),
        Case("halo without padding", lambda: halo(pad=0), ("out-of-range",)),
        Case("halo with too little", lambda: halo(lo=2), ("out-of-range",)),
        Case("tiles 4 4", lambda: two(first=4, second=4)),
        Case("tiles 6 4", lambda: two(first=6, second=4)),
        Case("tiles 5 3", lambda: two(first=5, second=3)),
        Case("tiles 1 7", lambda: two(first=1, second=7)),
        Case("tiles overlap", lambda: two(extra=1), ("write-write",)),
        Case("tiles overlap by more than one", lambda: two(first=2, extra=3), ("write-write",)),
        Case("tiles leave a gap", lambda: two(extra=-1), ("no-producer",)),
        Case("broadcast part", lambda: bases.broadcast(at=lambda b, i: b[2:5])),
        Case("broadcast by remainder", lambda: bases.broadcast(at=lambda b, i: b[i % 5])),
        Case("broadcast by minimum", lambda: bases.broadcast(at=lambda b, i: b[et.min(i, 4)])),
        Case("broadcast too far", lambda: bases.broadcast(at=lambda b, i: b[i]),
             ("out-of-range",), (*SMALL, {"n": 21})),
        Case("reduction of more than there is",
             lambda: bases.reduction(cells=lambda n: n.tiles(T) + 1), ("no-producer",)),
        Case("reduction into too little", lambda: bases.reduction(cells=lambda n: n.tiles(T + 1)),
             ("out-of-range",)),
        Case("two grids, one column twice", lambda: bases.two_grids(cut=3)),
        Case("two grids, one column never", lambda: bases.two_grids(cut=1), ("no-producer",)),
    ]


def _loops() -> list[Case]:
    ring, tri, sub = bases.ring, bases.triangle, bases.substitution
    deep: dict[str, Any] = {"dims": DEEP}
    return [
        Case("ring 1", lambda: ring(1), **deep),
        Case("ring 3", lambda: ring(3), **deep),
        Case("ring 1 without a chain", lambda: ring(1, chain=False), **deep),
        Case("ring 2 without a chain", lambda: ring(2, chain=False), **deep),
        Case("ring 2 reads the other copy", lambda: ring(2, back=1),
             ("no-producer",), **deep),
        Case("ring 3 reads ahead", lambda: ring(3, back=1, chain=False), ("no-producer",), **deep),
        Case("triangle, short rows", lambda: tri(upto=1)),
        Case("triangle, too many columns", lambda: tri(grow=2), ("out-of-range",)),
        Case("triangle, reads above", lambda: tri(upto=2 * T), ("no-producer",)),
        Case("substitution, one less", lambda: sub(less=2)),
        Case("substitution, from two on", lambda: sub(less=2, start=2)),
        Case("substitution, one too many", lambda: sub(less=0), ("out-of-range",)),
        Case("substitution onto itself", lambda: sub(start=0), ("uncovered-read",)),
        Case("neighbour of itself", lambda: neighbour(0)),
        Case("neighbours", lambda: neighbour(1), ("uncovered-read",)),
        Case("mutual", mutual, ("cycle",)),
        Case("chain unordered", lambda: bases.chain(unordered=True)),
    ]


def _declared() -> list[Case]:
    make = bases.declared
    whole: dict[str, Any] = {
        "shape": lambda nt: (), "notify": lambda e, i, j: e[()], "wait": lambda e, i: e[()],
    }
    fine: dict[str, Any] = {
        "shape": lambda nt: (nt, 3), "count": 1, "notify": lambda e, i, j: e[i, j],
    }
    return [
        Case("declared, count derived", lambda: make(count=None)),
        Case("declared, all cells", lambda: make(wait=lambda e, i: e[:])),
        Case("declared, one cell more", lambda: make(shape=lambda nt: (nt + 1,))),
        Case("declared, neighbours too",
             lambda: make(wait=lambda e, i: e[et.max(i - 1, 0) : i + 1])),
        Case("declared barrier", lambda: make(count=_count, **whole)),
        Case("declared fine", lambda: make(wait=lambda e, i: e[i, :], **fine)),
        Case("count 2 of 3", lambda: make(count=2), ("count-low",)),
        Case("count 4 of 3", lambda: make(count=4), ("count-high",)),
        Case("count n", lambda: make(count=lambda n: n), ("count-low", "count-high")),
        Case("barrier one less", lambda: make(count=lambda n: _count(n, -1), **whole),
             ("count-low",)),
        Case("barrier one more", lambda: make(count=lambda n: _count(n, 1), **whole),
             ("count-high",)),
        Case("no wait", lambda: make(wait=lambda e, i: ()), ("uncovered-read",)),
        Case("waits for the first", lambda: make(wait=lambda e, i: e[0]), ("uncovered-read",)),
        Case("waits for the one before", lambda: make(wait=lambda e, i: e[et.max(i - 1, 0)]),
             ("uncovered-read",)),
        Case("waits for the one after", lambda: make(wait=lambda e, i: e[i + 1]),
             ("out-of-range",)),
        Case("no notify", lambda: make(notify=lambda e, i, j: ()),
             ("count-high", "uncovered-read")),
        Case("notifies the first", lambda: make(notify=lambda e, i, j: e[0]),
             ("count-low", "count-high", "uncovered-read")),
        Case("notifies twice", lambda: make(notify=lambda e, i, j: (e[i], e[i])), ("count-low",)),
        Case("notifies twice, count 6",
             lambda: make(count=6, notify=lambda e, i, j: (e[i], e[i]))),
        Case("notifies past the end", lambda: make(notify=lambda e, i, j: e[i + 1]),
             ("out-of-range",)),
        Case("waits for two of three columns", lambda: make(wait=lambda e, i: e[i, 0:2], **fine),
             ("uncovered-read",)),
        Case("waits for one of three columns", lambda: make(wait=lambda e, i: e[i, 1], **fine),
             ("uncovered-read",)),
    ]


def _reuse() -> list[Case]:
    """Early reuse of a ring whose waits are all declared."""
    make = bases.declared_ring

    def after(k: int) -> Any:
        return lambda f, lv, i: f[et.max(lv - k, 0) : et.max(lv - k + 1, 0), i]

    early = ("write-after-read", "write-write")
    late = ("uncovered-read", "write-write")
    deep: dict[str, Any] = {"dims": DEEP}
    return [
        *(Case(f"ring {r} declared", partial(make, r), **deep) for r in (1, 2, 3)),
        Case("ring 2 waits for one back", lambda: make(2, wait_up=after(1)), **deep),
        *(Case(f"ring {r} waits for {k} back", partial(make, r, wait_up=after(k)), early,
               **deep) for r, k in ((1, 2), (1, 3), (2, 3), (3, 4), (3, 2))),
        *(Case(f"ring {r} never waits", partial(make, r, wait_up=lambda f, lv, i: ()), early,
               **deep) for r in (1, 2, 3)),
        Case("reader waits for the iteration before",
             lambda: make(wait_down=lambda f, lv, i: f[et.max(lv - 1, 0), i]),
             late, **deep),
        Case("reader never waits", lambda: make(wait_down=lambda f, lv, i: ()), late, **deep),
        Case("reader waits for the first tile", lambda: make(wait_down=lambda f, lv, i: f[lv, 0]),
             late, **deep),
    ]


CASES = {c.name: c for c in (*_row_sum(), *_tiles(), *_loops(), *_declared(), *_reuse())}
