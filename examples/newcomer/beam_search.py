"""Beam search: each step keeps the best few of all ways to go on from the best few so far."""

from __future__ import annotations

import numpy as np

import eventtensor as et

BEAMS, WORDS = 4, 24


@et.task
def begin(first, score, word, parent):
    best, index = et.topk(first, BEAMS)
    score[:] = best
    word[:] = index
    parent[:] = et.zeros((BEAMS,), et.i32)


@et.task
def step(score, ways, new_score, word, parent):
    total = (score[:, None] + ways).flatten()
    best, index = et.topk(total, BEAMS)
    new_score[:] = best
    word[:] = index % WORDS
    parent[:] = index // WORDS


def program() -> et.Program:
    steps = et.dim("steps", max=64)
    p = et.Program("beam_search")
    first, ways = p.input("first", (WORDS,), et.f32), p.input("ways", (WORDS, WORDS), et.f32)
    score = p.output("score", (steps + 1, BEAMS), et.f32)
    word = p.output("word", (steps + 1, BEAMS), et.i32, bound=WORDS - 1)
    parent = p.output("parent", (steps + 1, BEAMS), et.i32)
    p.call(begin, grid=(), reads=first, writes=lambda: (score[0, :], word[0, :], parent[0, :]))
    with p.loop("t", steps) as t:
        p.call(step, grid=(), reads=lambda: (score[t, :], ways[word[t, 0:BEAMS], :]),
               writes=lambda: (score[t + 1, :], word[t + 1, :], parent[t + 1, :]))
    return p


def inputs(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"first": rng.standard_normal(WORDS, np.float32),
            "ways": rng.standard_normal((WORDS, WORDS), np.float32), "steps": 6}


def expected(first, ways, steps) -> dict[str, np.ndarray]:
    order = np.argsort(-first, kind="stable")[:BEAMS]
    score, word, parent = [first[order]], [order], [np.zeros(BEAMS, int)]
    for _ in range(steps):
        total = (score[-1][:, None] + ways[word[-1]]).flatten()
        order = np.argsort(-total, kind="stable")[:BEAMS]
        score.append(total[order])
        word.append(order % WORDS)
        parent.append(order // WORDS)
    return {"score": np.stack(score), "word": np.stack(word), "parent": np.stack(parent)}
