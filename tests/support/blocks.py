"""Shapes of work that a random call would not hit: rings, triangles, declared events, data.

Each block takes a Maker, uses its pool, and leaves new tensors in it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

import eventtensor as et
from tests.support import bodies
from tests.support.draw import Choose, Coord, Drawn, Held, Maker, Region, same_size

# ---- loops ---------------------------------------------------------------------------------


def layers(mk: Maker) -> None:
    """Random calls inside a loop: updates, rewrites, accumulations."""
    targets = [mk.fresh() for _ in range(2)]
    for t in targets:
        mk.write(t)
        mk.pool.append(t)
    with mk.p.loop(mk.name("l"), mk.pick((mk.depth, 3))) as at:
        mk.loop = at
        for _ in range(mk.number(1, 3)):
            target = mk.pick(targets)
            mk.pick((mk.write, mk.update, mk.add))(target)
        mk.loop = None


def ring(mk: Maker) -> None:
    """A buffer of r copies over a loop: written, then read with other tiles, in each iteration."""
    size, r = mk.pick((mk.n, mk.m)), mk.number(1, 3)
    buffer = mk.p.scratch(mk.name("ring"), (r, size), et.f32)
    out = mk.fresh((size,))
    a, b = Coord(size, mk.number(1, 6)), Coord(size, mk.number(1, 6))
    source = mk.any()
    chained = mk.chance(60) and out.ref.tensor.role.value == "output"
    if chained:
        mk.call(bodies.fill, [b], [], [lambda at: out.ref[b.slice(at[0])]])
    with mk.p.loop(mk.name("l"), mk.pick((mk.depth, 4))) as lv:
        first = [mk.reach(source, [a])]
        if chained:
            first.append(mk.reach(Held(out.ref, (size,)), [a]))
        mk.call(bodies.MIX[len(first)], [a], first, [lambda at: buffer[lv % r, a.slice(at[0])]])
        read = mk.reach(Held(_Row(buffer, lv % r), (size,)), [b])
        mk.call(bodies.mix1, [b], [read], [lambda at: out.ref[b.slice(at[0])]])
    mk.pool.append(out)


class _Row:
    """One row of a ring, indexed like a tensor of one axis."""

    def __init__(self, ref: Any, row: Any) -> None:
        self.ref, self.row = ref, row

    def __getitem__(self, key: tuple[Any, ...]) -> Any:
        return self.ref[(self.row, *key)]

    def padded(self, lo: tuple[int, ...], hi: tuple[int, ...], value: float) -> Any:
        return _Row(self.ref.padded((0, *lo), (0, *hi), value), self.row)


# ---- operands walked in chunks --------------------------------------------------------------


def _walk(mk: Maker, source: Held, out: Held, other: Held) -> None:
    """Every tile of `out` walks over the rows of `source`, or those up to its own."""
    coords, tile = mk.cover(out.sizes)
    near = [k for k, c in enumerate(coords) if same_size(c.size, source.sizes[0])]
    rest = (slice(None),) * (len(source.sizes) - 1)
    upto = mk.pick(near) if near and mk.chance(40) else None

    def rows(at: Any) -> Any:
        if upto is None:
            return source.ref[(slice(None), *rest)]
        return source.ref[(slice(0, at[upto] * coords[upto].tile + coords[upto].tile), *rest)]

    mk.call(bodies.walk(mk.number(1, 7)), coords, [rows, mk.reach(other, coords)],
            [lambda at: out.ref[tile(at)]])


def walked(mk: Maker) -> None:
    """A tensor made in tiles, then walked over in chunks."""
    source, out, other = mk.fresh(), mk.fresh(), mk.any()
    mk.write(source)
    _walk(mk, source, out, other)
    mk.pool += [source, out]


def walked_layers(mk: Maker) -> None:
    """Layers that walk over all of the layer before, through a buffer that is written anew."""
    sizes = (mk.pick((mk.n, mk.m)), *((3,) if mk.chance(50) else ()))
    state, buffer = mk.fresh(sizes), mk.fresh(sizes)
    mk.write(state)
    mk.pool.append(state)
    with mk.p.loop(mk.name("l"), mk.pick((mk.depth, 3))) as at:
        mk.loop = at
        coords, tile = mk.cover(sizes)
        mk.call(bodies.mix1, coords, [mk.reach(state, coords)], [lambda at: buffer.ref[tile(at)]])
        _walk(mk, buffer, state, mk.pick([h for h in mk.pool if h is not state]))
        mk.loop = None
    mk.pool.append(buffer)


# ---- triangles -----------------------------------------------------------------------------


def triangle(mk: Maker) -> None:
    """Tiles (i, j <= i) of a square, read by rows or tile by tile."""
    t, size = mk.number(2, 5), mk.n
    square = mk.p.scratch(mk.name("tri"), (size, size), et.f32)
    out = mk.fresh((size,))
    c = Coord(size, t)
    source = mk.reach(mk.any(), [c])
    mk.call(bodies.mix1, [c, lambda i: i + 1], [source],
            [lambda at: square[c.slice(at[0]), c.slice(at[1])]])
    if mk.chance(50):
        mk.call(bodies.mix1, [c], [lambda at: square[c.slice(at[0]), 0 : at[0] * t + t]],
                [lambda at: out.ref[c.slice(at[0])]])
    else:
        mk.call(bodies.add1, [c, lambda i: i + 1],
                [lambda at: square[c.slice(at[0]), c.slice(at[1])]],
                adds=[lambda at: out.ref[c.slice(at[0])]], unordered=mk.chance(50))
    mk.pool.append(out)


def substitution(mk: Maker) -> None:
    """Tile k is finished, then all tiles after it are changed by it: grids that shrink."""
    c = Coord(mk.n, mk.number(2, 6))
    x = mk.fresh((mk.n,))
    mk.write(x)
    with mk.p.loop(mk.name("k"), c.extent) as k:
        own = lambda at: x.ref[c.slice(k)]
        mk.call(bodies.same, [], [own], [own])
        later = lambda at: x.ref[c.slice(k + 1 + at[0])]
        mk.call(bodies.mix2, [c.extent - k - 1], [own, later], [later])
    mk.pool.append(x)


# ---- declared events -----------------------------------------------------------------------


def declared(mk: Maker) -> None:
    """A producer and a consumer with an event of their own: by row, whole, or with neighbours."""
    size, width = mk.pick((mk.n, mk.m)), mk.number(1, 4)
    c = Coord(size, mk.number(1, 5))
    part, out = mk.fresh((size, width)), mk.fresh((size,))
    how = mk.pick(("row", "whole", "halo", "derived count"))
    count = {"row": width, "halo": width, "whole": c.extent * width}.get(how)
    shape = () if how == "whole" else (c.extent,)
    ev = mk.p.events(mk.name("ev"), shape, count=count)
    mk.call(bodies.mix1, [c, width], [mk.reach(mk.any(), [c])],
            [lambda at: part.ref[c.slice(at[0]), at[1]]],
            notifies=lambda at: ev[()] if how == "whole" else ev[at[0]])
    halo = c.tile if how == "halo" else 0
    read = part.ref.padded((halo, 0), (halo, 0), 1.0) if halo else part.ref

    def waits(at: Any) -> Any:
        if how == "whole":
            return ev[()]
        near = slice(et.max(at[0] - 1, 0), et.min(at[0] + 2, c.extent))
        return ev[near] if how == "halo" else ev[at[0]]

    mk.call(bodies.mix1, [c], [lambda at: read[c.slice(at[0], halo, halo), :]],
            [lambda at: out.ref[c.slice(at[0])]], waits=waits)
    mk.pool += [part, out]


def declared_loop(mk: Maker) -> None:
    """A chain over a loop with declared events for one direction, and derived ones for the rest."""
    c = Coord(mk.n, mk.number(2, 5))
    x, y = mk.fresh((mk.n,)), mk.fresh((mk.n,))
    mk.write(x)
    extent = mk.pick((mk.depth, 3))
    ev = mk.p.events(mk.name("ev"), (extent, c.extent), count=1)
    with mk.p.loop(mk.name("l"), extent) as lv:
        mk.call(bodies.mix1, [c], [lambda at: x.ref[c.slice(at[0])]],
                [lambda at: y.ref[c.slice(at[0])]], notifies=lambda at: ev[lv, at[0]])
        mk.call(bodies.mix1, [c], [lambda at: y.ref[c.slice(at[0])]],
                [lambda at: x.ref[c.slice(at[0])]], waits=lambda at: ev[lv, at[0]])
    mk.pool += [x, y]


# ---- run-time data -------------------------------------------------------------------------


def _index(mk: Maker, base: str, shape: tuple[Any, ...], **facts: Any) -> tuple[Any, str]:
    """An index tensor: given as input, or copied by a task; and the name of the input."""
    source = mk.p.input(mk.name(base), shape, et.i32, **facts)
    if mk.chance(50):
        return source, source.name
    made = mk.p.scratch(mk.name(base), shape, et.i32, **facts)
    rest = (slice(None),) * (len(shape) - 1)
    c = Coord(shape[0], mk.number(2, 5))
    mk.call(bodies.copy_index, [c], [lambda at: source[(c.slice(at[0]), *rest)]],
            [lambda at: made[(c.slice(at[0]), *rest)]])
    return made, source.name


def scatter(mk: Maker) -> None:
    """Rows go to the places that a permutation names, and come back from there or all at once."""
    n = mk.n
    perm, source = _index(mk, "perm", (n,), bound=n - 1, distinct=True)
    mk.data.append(lambda dims, rng: {source: rng.permutation(dims["n"])})
    moved, out = mk.fresh((n, 2)), mk.fresh((n,))
    row = Coord(n, 1)
    mk.call(bodies.mix1, [row], [mk.reach(mk.any(), [row])], [lambda at: moved.ref[perm[at[0]], :]])
    if mk.chance(50):
        mk.call(bodies.mix1, [row], [lambda at: moved.ref[perm[at[0]], :]],
                [lambda at: out.ref[at[0]]])
    else:
        c = Coord(n, mk.number(2, 5))
        mk.call(bodies.mix1, [c], [lambda at: moved.ref[c.slice(at[0]), :]],
                [lambda at: out.ref[c.slice(at[0])]])
    mk.pool.append(out)


def gathered(mk: Maker) -> None:
    """Each task reads the rows that a table names."""
    k = mk.number(1, 3)
    rows = mk.fresh((mk.m, 2))
    mk.write(rows)
    table, source = _index(mk, "table", (mk.n, k), bound=mk.m - 1)
    mk.data.append(lambda dims, rng: {source: rng.integers(0, dims["m"], (dims["n"], k))})
    out = mk.fresh((mk.n,))
    mk.call(bodies.mix1, [mk.n], [lambda at: rows.ref[table[at[0], :], :]],
            [lambda at: out.ref[at[0]]])
    mk.pool += [rows, out]


def segments(mk: Maker) -> None:
    """Rows indptr[e] .. indptr[e+1] belong to e: written by segment, read by segment or by tile."""
    groups = 3
    indptr, source = _index(mk, "indptr", (groups + 1,), bound=mk.n, monotone=True)

    def make(dims: dict[str, int], rng: np.random.Generator) -> dict[str, Any]:
        inner = np.sort(rng.integers(0, dims["n"] + 1, groups - 1))
        return {source: np.concatenate([[0], inner, [dims["n"]]])}

    mk.data.append(make)
    rows, out = mk.fresh((mk.n, 2), by_data=True), mk.fresh((groups,))
    own = lambda at: rows.ref[indptr[at[0]] : indptr[at[0] + 1], :]
    if mk.chance(60):
        mk.call(bodies.mix1, [groups], [mk.reach(mk.any(), [])], [own])
    else:
        mk.write(rows)
    mk.call(bodies.mix1, [groups], [own], [lambda at: out.ref[at[0]]])
    mk.pool.append(out)


def ragged(mk: Maker) -> None:
    """A grid whose second extent is read at run time."""
    groups, most, t = 3, 4, mk.number(1, 3)
    count, source = _index(mk, "tiles", (groups,), bound=most)
    mk.data.append(lambda dims, rng: {source: rng.integers(0, most + 1, groups)})
    part = mk.p.scratch(mk.name("part"), (groups, most * t), et.f32)
    out = mk.p.state(mk.name("t"), (groups, most * t), et.f32)  # keeps what no task writes
    grid = [groups, lambda i: count[i]]

    def tile(ref: Any) -> Region:
        return lambda at: ref[at[0], at[1] * t : at[1] * t + t]

    mk.call(bodies.mix1, grid, [mk.reach(mk.any(), [])], [tile(part)])
    mk.call(bodies.mix1, grid, [tile(part)], [tile(out)])


# ---- whole programs ------------------------------------------------------------------------

Block = Callable[[Maker], None]

STATIC: dict[str, tuple[Block, ...]] = {
    "calls": (Maker.step,),
    "loops": (layers, ring),
    "triangles": (triangle, substitution),
    "declared": (declared, declared_loop),
    "walks": (walked, walked_layers),
}
DATA: dict[str, tuple[Block, ...]] = {"data": (scatter, gathered, segments, ragged)}
FAMILIES = {**STATIC, **DATA}
# Blocks in one program at most.
MOST = {"calls": 3, "loops": 1, "triangles": 2, "declared": 2, "walks": 1, "data": 2}


def program(number: Choose, family: str, small: bool = False) -> Drawn:
    """A program with two inputs, some random calls, and one or two blocks of the family."""
    mk = Maker(number)
    for _ in range(2):
        mk.input()
    for _ in range(1 if small else mk.number(1, 2)):
        mk.step()
    for _ in range(1 if small else mk.number(1, MOST[family])):
        mk.pick(FAMILIES[family])(mk)
    if not small and mk.chance(40):
        mk.step()
    built = mk.p.build()
    names = {d.name for d in built.dims}
    sizes = [
        {k: v for k, v in d.items() if k in names}
        for d in ({"n": mk.number(1, 6), "m": mk.number(1, 5), "L": mk.number(1, 4)},
                  {"n": mk.number(7, 15), "m": mk.number(6, 11), "L": mk.number(2, 5)})
    ]
    return Drawn(built, tuple(mk.data), tuple(sizes))


@st.composite
def programs(draw: Callable[..., Any], family: str) -> Drawn:
    """Programs that hypothesis chooses."""
    return program(lambda lo, hi: int(draw(st.integers(lo, hi))), family)


def seeded(seed: int, family: str, small: bool = False) -> Drawn:
    """A program chosen by a seed alone."""
    return program(random.Random(f"{family} {seed}").randint, family, small)


__all__ = ["DATA", "FAMILIES", "STATIC", "program", "programs", "seeded"]
