"""The sampler in plain NumPy, by the definition in sampler.py, and a program with nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

import eventtensor as et
from eventtensor.llm.model.decoder_tasks import choose
from eventtensor.llm.model.logits_processors import Logits
from eventtensor.llm.model.sampler import Sampler, reach, search_steps
from eventtensor.llm.runner.batch_arrays import LogitsChange, TokenChoice
from tests.engine.reference import changed

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
    min_p: float = 0.0
    change: LogitsChange | None = None

    @property
    def choice(self) -> TokenChoice:
        return TokenChoice(self.temperature, self.top_k, self.top_p, self.uniform, self.min_p,
                      self.change)

    @property
    def steps(self) -> int:
        return search_steps(self.top_k, self.top_p)


def kept(logits: np.ndarray, w: Wish) -> np.ndarray:
    """The tokens that may be drawn, most likely first, the lowest first among equals."""
    p = np.exp((logits.astype(np.float64) - logits.max()) / w.temperature)
    order = np.argsort(-p, kind="stable")[: w.top_k or None]
    order = order[p[order] >= w.min_p]
    if w.top_p >= 1:
        return order
    sums = np.cumsum(p[order])
    return order[: 1 + int(np.searchsorted(sums, w.top_p * sums[-1]))]


def drawn(logits: np.ndarray, w: Wish) -> int:
    if w.temperature == 0:
        return int(logits.argmax())
    p = np.exp((logits.astype(np.float64) - logits.max()) / w.temperature)
    mass = np.zeros_like(p)
    mass[kept(logits, w)] = p[kept(logits, w)]
    sums = np.cumsum(mass)
    return int(np.searchsorted(sums, w.uniform * sums[-1], side="right"))


def decided(logits: np.ndarray, w: Wish) -> bool:
    """Whether a little more or less of each mass gives the same token."""
    if w.temperature == 0:
        first, second = np.sort(logits)[-1], np.sort(logits)[-2]
        return bool(first - second > NOISE * abs(first))
    near = [replace(w, uniform=min(max(w.uniform + u, 0.0), 1 - 1e-9),
                    min_p=min(w.min_p * (1 + m), 1.0),
                    top_p=w.top_p if w.top_p >= 1 else max(w.top_p + p, 0.0))
            for u in (-NOISE, NOISE) for p in (-NOISE, NOISE) for m in (-NOISE, NOISE)]
    return len({drawn(logits, x) for x in near}) == 1


def wish_arrays(wishes: Sequence[Wish], rows: int, vocab: int) -> Arrays:
    """The arguments of a launch that draws for these rows (none: all are greedy)."""
    own = {w.row: w for w in wishes}
    drawing = [w.row for w in wishes if w.change is None or w.temperature > 0]
    changes = {w.row: w.change for w in wishes if w.change is not None}
    behind = {r: rows + k for k, r in enumerate(changes)}

    def column(name: str, dtype: type, default: float) -> np.ndarray:
        return np.array([getattr(own.get(r), name, default) for r in range(rows)], dtype)

    return {"sampled": np.array(drawing, np.int32),
            "origin": np.array([behind.get(r, r) for r in drawing], np.int32),
            "temperature": column("temperature", np.float32, 0.0),
            "top_k": column("top_k", np.int32, 0), "top_p": column("top_p", np.float32, 1.0),
            "reach": np.array([reach(m) for m in column("min_p", float, 0.0)], np.float32),
            "uniform": column("uniform", np.float32, 0.0),
            **change_arrays(changes, vocab)}


def change_arrays(changes: Mapping[int, LogitsChange], vocab: int) -> Arrays:
    every = list(changes.values())
    longest = max((len(c.history) for c in every), default=1) + 1
    history = np.full((len(every), longest), -1, np.int32)
    allowed = np.zeros((len(every), -(-vocab // 8)), np.uint8)
    for k, c in enumerate(every):
        history[k, : len(c.history)] = c.history
        if c.allowed is not None:
            allowed[k] = c.allowed
    masked = [c.allowed is not None for c in every]
    biased = np.full((len(every), 1 + max((len(c.bias) for c in every), default=0)), -1, np.int32)
    bias = np.zeros(biased.shape, np.float32)
    for k, c in enumerate(every):
        end = 1 + len(c.bias)
        biased[k, 1:end], bias[k, 1:end] = [*c.bias], [*c.bias.values()]
    return {"adjusted": np.array(list(changes), np.int32), "history": history, "allowed": allowed,
            "biased": biased, "bias": bias,
            "masked": np.array(masked, np.int32),
            "prompt": np.array([c.prompt for c in every], np.int32),
            **{name: np.array([getattr(c, name) for c in every], np.float32)
               for name in ("repetition", "presence", "frequency")}}


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
    p, S = et.Program("choice"), et.dim("S", max=64)
    given = p.input("given", (S, vocab), et.f32)
    x = Logits(p, S, vocab, TILE)
    best = p.scratch("best", (S, x.tiles), et.f32)
    best_at = p.scratch("best_at", (S, x.tiles), et.i32)
    draws = Sampler(x, part)

    def cut(i):
        return slice(i * TILE, i * TILE + TILE)

    p.call(give, grid=(x.tiles,), notifies=lambda i: x.ready[()],
           reads=lambda i: given[:, cut(i)],
           writes=lambda i: (x.values[0:S, cut(i)], best[:, i], best_at[:, i], x.tops[0:S, i]))
    p.call(choose(TILE), grid=(S,), reads=lambda s: (best[s, :], best_at[s, :]),
           writes=lambda s: x.chosen[s])
    draws.add_calls()
    return p


Choose = Callable[[np.ndarray, Sequence[Wish]], np.ndarray]


def launch_arrays(given: np.ndarray, wishes: Sequence[Wish]) -> Arrays:
    rows, vocab = given.shape
    a = wish_arrays(wishes, rows, vocab)
    return {"given": given, "logits": np.empty((rows + len(a["adjusted"]), vocab), np.float32),
            "chosen": np.full(rows, -7, np.int32), **a}


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
        Wish(int(r), float(np.float32(rng.choice([0.0, 0.2, 0.7, 1.0, 2.5]))),
             int(rng.choice([0, 0, 1, 3, 40, vocab, 3 * vocab])),
             float(np.float32(rng.choice([1.0, 1.0, 0.95, 0.6, 0.1, 0.0]))),
             float(rng.random(dtype=np.float32)), float(rng.choice([0, 0, 1e-3, 0.1, 0.9, 1])),
             random_change(rng, vocab) if rng.random() < 0.4 else None)
        for r in rng.permutation(rows)[: rng.integers(1, rows + 1)]
    ]
    return logits, wishes


def random_change(rng: np.random.Generator, vocab: int) -> LogitsChange:
    """Penalties, tokens that are moved, tokens that may not come, or some of these."""
    history = rng.integers(0, vocab, rng.choice([0, 1, 30, 500]))
    bits = None
    if rng.random() < 0.6:
        some = rng.random(vocab) < rng.choice([0.001, 0.1, 0.9])
        some[rng.integers(vocab)] = True
        bits = np.packbits(some, bitorder="little")
    moved = rng.choice(vocab, rng.choice([0, 0, 1, 40, 1000]), replace=False)
    bias = {int(t): float(np.float32(b)) for t, b in
            zip(moved, rng.choice([-100, -3.3, 0.7, 6], len(moved)), strict=True)}
    return LogitsChange(history, int(rng.integers(len(history) + 1)),
                        float(rng.choice([1, 0.5, 1.7])), float(rng.choice([0, 0.8, -1])),
                        float(rng.choice([0, 0.3])), bits, bias)


def check_case(logits: np.ndarray, wishes: Sequence[Wish], got: np.ndarray) -> int:
    """How many rows could be checked: those that float noise does not decide."""
    asked = 0
    for w in wishes:
        row = changed(logits[w.row], TokenChoice(change=w.change))
        if decided(row, w):
            assert got[w.row] == drawn(row, w), w
            asked += 1
    for r in {*range(len(logits))} - {w.row for w in wishes}:
        assert got[r] == logits[r].argmax(), f"row {r} is greedy"
    return asked
