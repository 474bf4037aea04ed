"""Token choice in plain NumPy, as the definition in sampling.py says it, and a program that has
nothing but it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

import eventtensor as et
from eventtensor.models.sampling import Draws, search_steps
from eventtensor.models.tasks import choose

Arrays = dict[str, np.ndarray]
NOISE = 1e-5  # of masses in float32; cases that it could decide are not asked


@dataclass(frozen=True)
class Wish:
    """How the token of a row is to be drawn."""

    row: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    uniform: float = 0.5

    @property
    def steps(self) -> int:
        return search_steps(self.top_k, self.top_p)


def kept(logits: np.ndarray, w: Wish) -> np.ndarray:
    """The tokens that may be drawn, most likely first, the lowest first among equals."""
    p = np.exp((logits.astype(np.float64) - logits.max()) / w.temperature)
    order = np.argsort(-p, kind="stable")[: w.top_k or None]
    if w.top_p >= 1:
        return order
    sums = np.cumsum(p[order])
    return order[: 1 + int(np.searchsorted(sums, w.top_p * sums[-1]))]


def drawn(logits: np.ndarray, w: Wish) -> int:
    p = np.exp((logits.astype(np.float64) - logits.max()) / w.temperature)
    mass = np.zeros_like(p)
    mass[kept(logits, w)] = p[kept(logits, w)]
    sums = np.cumsum(mass)
    return int(np.searchsorted(sums, w.uniform * sums[-1], side="right"))


def decided(logits: np.ndarray, w: Wish) -> bool:
    """Whether a little more or less of each mass gives the same token."""
    near = [replace(w, uniform=min(max(w.uniform + u, 0.0), 1 - 1e-9),
                    top_p=w.top_p if w.top_p >= 1 else max(w.top_p + p, 0.0))
            for u in (-NOISE, NOISE) for p in (-NOISE, NOISE)]
    return len({drawn(logits, x) for x in near}) == 1


def wish_arrays(wishes: Sequence[Wish], rows: int) -> Arrays:
    """The arguments of a launch that draws for these rows (none: all are greedy)."""
    own = {w.row: w for w in wishes}

    def column(name: str, dtype: type, default: float) -> np.ndarray:
        return np.array([getattr(own.get(r), name, default) for r in range(rows)], dtype)

    return {"sampled": np.array([*own], np.int32),
            "temperature": column("temperature", np.float32, 0.0),
            "top_k": column("top_k", np.int32, 0), "top_p": column("top_p", np.float32, 1.0),
            "uniform": column("uniform", np.float32, 0.0)}


def steps_of(wishes: Sequence[Wish]) -> int:
    return max((w.steps for w in wishes), default=0)


# ---- a program of the choice alone -----------------------------------------------------------

TILE = 16


@et.task
def give(x, logits, best, best_at, tops):
    logits[:] = x
    best[:] = x.max(axis=1)
    best_at[:] = et.argmax(x)
    tops[:] = x.max(axis=1)


def choice(vocab: int, part: int) -> et.Program:
    p, S, tiles = et.Program("choice"), et.dim("S", max=64), vocab // TILE
    given = p.input("given", (S, vocab), et.f32)
    logits, chosen = p.output("logits", (S, vocab), et.f32), p.output("chosen", (S,), et.i32)
    best = p.scratch("best", (S, tiles), et.f32)
    best_at = p.scratch("best_at", (S, tiles), et.i32)
    draws = Draws(p, S, logits, chosen, tiles, part)

    def cut(i):
        return slice(i * TILE, i * TILE + TILE)

    p.call(give, grid=(tiles,), notifies=lambda i: draws.ready[()],
           reads=lambda i: given[:, cut(i)],
           writes=lambda i: (logits[:, cut(i)], best[:, i], best_at[:, i], draws.tops[:, i]))
    p.call(choose(TILE), grid=(S,), reads=lambda s: (best[s, :], best_at[s, :]),
           writes=lambda s: chosen[s])
    draws.calls()
    return p


Choose = Callable[[np.ndarray, Sequence[Wish]], np.ndarray]


def launch_arrays(given: np.ndarray, wishes: Sequence[Wish]) -> Arrays:
    return {"given": given, "logits": np.empty_like(given),
            "chosen": np.full(len(given), -7, np.int32), **wish_arrays(wishes, len(given))}


def chooser(kernel: et.Kernel) -> Choose:
    def run(given: np.ndarray, wishes: Sequence[Wish]) -> np.ndarray:
        a = launch_arrays(given, wishes)
        kernel(**a, Q=steps_of(wishes))
        return a["chosen"]

    return run


# ---- cases -----------------------------------------------------------------------------------


def random_case(
    rng: np.random.Generator, rows: int, vocab: int
) -> tuple[np.ndarray, list[Wish]]:
    """Some rows are drawn, with options of every kind; the others are greedy."""
    spread = rng.choice([0.3, 1.0, 4.0, 12.0], (rows, 1))
    logits = (rng.standard_normal((rows, vocab)) * spread).astype(np.float32)
    wishes = [
        Wish(int(r), float(np.float32(rng.choice([0.2, 0.7, 1.0, 2.5]))),
             int(rng.choice([0, 0, 1, 3, 40, vocab, 3 * vocab])),
             float(np.float32(rng.choice([1.0, 1.0, 0.95, 0.6, 0.1, 0.0]))),
             float(rng.random(dtype=np.float32)))
        for r in rng.permutation(rows)[: rng.integers(1, rows + 1)]
    ]
    return logits, wishes


def check_case(logits: np.ndarray, wishes: Sequence[Wish], got: np.ndarray) -> int:
    """How many rows could be checked: those that float noise does not decide."""
    asked = 0
    for w in wishes:
        if decided(logits[w.row], w):
            assert got[w.row] == drawn(logits[w.row], w), w
            asked += 1
    for r in {*range(len(logits))} - {w.row for w in wishes}:
        assert got[r] == logits[r].argmax(), f"row {r} is greedy"
    return asked
