"""Breadth-first search: the distances of one level follow from those of the level before."""

from __future__ import annotations

import numpy as np

import eventtensor as et

DEGREE, FAR = 4, 1 << 20


@et.task
def begin(source, dist, *, v):
    dist[:] = et.where(source == v, 0, FAR)


@et.task
def relax(mine, near, dist):
    dist[:] = et.minimum(mine, near.min() + 1)


def program() -> et.Program:
    vertices, levels = et.dim("vertices", max=4096), et.dim("levels", max=64)
    p = et.Program("bfs")
    near = p.input("near", (vertices, DEGREE), et.i32, bound=vertices - 1)
    source = p.input("source", (1,), et.i32)
    dist = p.output("dist", (levels + 1, vertices), et.i32)
    p.call(begin, grid=(vertices,), reads=lambda v: source[0], writes=lambda v: dist[0, v])
    with p.loop("level", levels) as level:
        p.call(relax, grid=(vertices,),
               reads=lambda v: (dist[level, v], dist[level, near[v, 0:DEGREE]]),
               writes=lambda v: dist[level + 1, v])
    return p


def inputs(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"near": rng.integers(0, 60, (60, DEGREE)).astype(np.int32),
            "source": np.array([3], np.int32), "levels": 5}


def expected(near, source, levels) -> dict[str, np.ndarray]:
    dist = [np.where(np.arange(len(near)) == source[0], 0, FAR)]
    for _ in range(levels):
        dist.append(np.minimum(dist[-1], dist[-1][near].min(axis=1) + 1))
    return {"dist": np.stack(dist)}
