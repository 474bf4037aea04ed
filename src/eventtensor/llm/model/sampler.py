"""Draws tokens by temperature, top-k, min-p and top-p inside of the kernel. `Sampler` defines the
numbers; logits_processors.py changes the logits before.

A radix search finds the threshold of p. In each step every part of a row counts its tokens by the
next digit, and the counts of all parts say where the search goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Any

import eventtensor as et

from .logits_processors import NEVER, Logits, LogitsProcessor

# The key of a token is the distance of its log p from the largest one, in steps of 1 / STEPS:
# likely tokens have small keys. Tokens with the last key have no mass, because their p is below
# 2e-28.
STEPS, KEYS = 1 << 18, 1 << 24
LAST = KEYS - 1
# A digit of a key has 16 groups of 16 bins. The sums of groups say which bins to read.
GROUPS, DIGITS = 16, 3
BINS = GROUPS * GROUPS
# The most tokens of a part of a row: the sum of their masses, of 18 bits each, fits 31 bits.
TILE, MASS = 8191, 1 << 18
# Neighbours that a draw sums at each of its levels.
LEVELS = (256, 16, 1)

# The state of the search in a part. All parts of a row have the same values, except for the last
# two fields. `top` and `rate` map a logit to a key. `unit` is the width of a bin in keys, 0 at the
# end of the search. `need` is the count that is still missing from `start` on. The other fields are
# whole numbers up to 2^24, or masses.
FIELDS = ("top", "rate", "unit", "start", "mass", "need", "need_mass", "edge", "ties",
          "below", "equals")


def search_steps(top_k: int, top_p: float) -> int:
    """The search steps of a row, one for each digit of each threshold. The first digit and the last
    one have their own tasks and do not count."""
    return max(DIGITS * ((top_k > 0) + (top_p < 1)) - 1, 0)


def reach(min_p: float) -> int:
    """The largest key of tokens whose p is at least `min_p` times the largest p."""
    return KEYS if min_p <= 0 else min(KEYS, int(-log(min_p) * STEPS))


# ---- parts of bodies -------------------------------------------------------------------------


def _key(logits: Any, top: Any, rate: Any) -> Any:
    """The key of a logit: a whole number, as f32."""
    return et.minimum((top - logits) * rate, float(LAST)).cast(et.i32).cast(et.f32)


def _weight(key: Any) -> Any:
    """p up to a factor that a row shares."""
    return et.exp(key * (-1.0 / STEPS))


def _count(counted: Any, logits: Any, s: dict[str, Any], unit: Any) -> None:
    """Counts the tokens in each bin of the current digit, and their mass in units of the bin's
    largest. Values that are used twice are computed twice, because storing them would need memory
    for all tokens. There are no branches, so threads load many tokens at once."""
    start, per = s["start"], 1.0 / unit  # exact: a power of two

    def far() -> Any:
        return _key(logits, s["top"], s["rate"]) - start

    def rest() -> Any:
        return far() - (far() * per).cast(et.i32).cast(et.f32) * unit

    index = et.where(far() < 0.0, -1.0, far() * per).cast(et.i32)
    beyond = (far() > s["edge"] - start).cast(et.i32) * BINS
    some = (far() < float(LAST) - start).cast(et.f32)
    mass = (_weight(rest()) * float(MASS) + 0.5) * some
    found = et.histogram(index + beyond, [1, mass.cast(et.i32)], BINS)
    firsts = start + et.iota(BINS).cast(et.f32) * unit
    counted[0, :] = found[0].cast(et.f32)
    counted[1, :] = found[1].cast(et.f32) * (1.0 / MASS) * _weight(firsts)


def _ceil(x: Any) -> Any:
    whole = x.cast(et.i32).cast(et.f32)
    return whole + (whole < x).cast(et.f32)


def _of_row(parts: Any) -> Any:
    """The sum over all parts; a thread loads the elements of its sum together."""
    total = parts[0]
    for k in range(1, int(parts.shape[0])):
        total = total + parts[k]
    return total


@dataclass(frozen=True)
class _Bin:
    """The bin or group in which the search reaches its target: counts and masses before and in
    it."""

    digit: Any
    count: Any
    mass: Any
    inside: Any
    inside_mass: Any

    @property
    def each(self) -> Any:
        return self.inside_mass / et.maximum(self.inside, 1.0)


def _find(counts: Any, need: Any, need_mass: Any) -> _Bin:
    """The first bin at which the sums reach the target. If rounding keeps the sums below it, the
    last bin that is not empty."""
    ends = counts.cumsum(1)
    short = (ends[0] < need) & (ends[1] < need_mass)
    last = et.where(counts[0] > 0.0, et.iota(GROUPS), 0).max(axis=0)
    digit = et.minimum(short.cast(et.i32).sum(axis=0), last)
    before = et.maximum(digit - 1, 0).reshape(1)
    found = [et.where(digit > 0, et.gather(ends[k], before)[0], 0.0) for k in range(2)]
    return _Bin(digit, *found, *(et.gather(counts[k], digit.reshape(1))[0] for k in range(2)))


def _next_state(
    s: dict[str, Any], groups: Any, bins: Any, top_p: Any
) -> tuple[dict[str, Any], Any, Any]:
    """The state after one more digit, from the counts of all parts, and that digit: a group and a
    bin of it. After the last digit the search ends, or goes on from the threshold of top-k to that
    of top-p."""
    row, by_count = _of_row(groups), s["need"] < NEVER
    share = et.where(top_p < 1.0, top_p, NEVER)
    whole = et.minimum(share * row[1].sum(axis=0), NEVER)
    need_mass = et.where(by_count, NEVER, et.where(s["need_mass"] < 0.0, whole, s["need_mass"]))
    g = _find(row, s["need"], need_mass)
    f = _find(_of_row(bins[:, :, g.digit, :]), s["need"] - g.count, need_mass - g.mass)
    need, left = s["need"] - g.count - f.count, need_mass - g.mass - f.mass
    mass = s["mass"] + g.mass + f.mass
    start = s["start"] + (g.digit * GROUPS + f.digit).cast(et.f32) * s["unit"]
    last = s["unit"] <= 1.0
    needed = et.minimum(et.where(by_count, need, _ceil(left / f.each)), f.inside)
    ties = et.minimum(et.maximum(needed, 1.0), et.where(start == s["edge"], s["ties"], NEVER))
    again = last & by_count & (top_p < 1.0)
    return {
        "top": s["top"], "rate": s["rate"],
        "unit": et.where(last, et.where(again, float(KEYS // BINS), 0.0), s["unit"] / float(BINS)),
        "start": et.where(again, 0.0, start), "mass": et.where(again, 0.0, mass),
        "need": et.where(by_count & ~again, need, NEVER),
        "need_mass": et.where(again, top_p * (mass + ties * f.each),
                              et.where(by_count, -1.0, left)),
        "edge": et.where(last, start, s["edge"]), "ties": et.where(last, ties, s["ties"]),
        "again": again,
    }, g.digit, f.digit


def _before(masses: Any, digit: Any) -> Any:
    """The sum of masses before a digit, along the last axis."""
    return et.where(et.iota(GROUPS) < digit, masses, 0.0).sum(axis=-1)


def _fields(state: Any) -> dict[str, Any]:
    return {k: state[i] for i, k in enumerate(FIELDS)}


def _stack(values: dict[str, Any]) -> Any:
    """The fields as one tensor, in one loop."""
    number, out = et.iota(len(FIELDS)), values[FIELDS[-1]]
    for k, name in enumerate(FIELDS[:-1]):
        out = et.where(number == k, values[name], out)
    return out


# ---- task kinds ------------------------------------------------------------------------------


def _store_counts(counted: Any, groups: Any, bins: Any) -> Any:
    found = counted.reshape(2, GROUPS, GROUPS)
    sums = found.sum(axis=2)
    groups[:] = sums
    bins[:] = found
    return sums


@et.task
def first_digit(logits, tops, temperature, top_k, top_p, reach, groups, bins, state):
    """Counts the first digit. A mass of -1 is replaced as soon as the mass of the row is known. The
    edge lies between keys at first. A row without top_k and top_p has no search: all of its
    candidates are below the edge."""
    unit, all_keys, zero = float(KEYS // BINS), et.full((), float(KEYS)), et.zeros(())
    sought = (temperature > 0.0) & ((top_k > 0) | (top_p < 1.0))
    begin = dict.fromkeys(FIELDS, zero) | {
        "top": tops.max(axis=0), "rate": float(STEPS) / et.maximum(temperature, 1e-30),
        "unit": et.where(sought, unit, 0.0), "need_mass": zero - 1.0,
        "need": et.where(top_k > 0, top_k.cast(et.f32), NEVER), "edge": reach + 0.5,
        "ties": all_keys,
    }
    counted = et.zeros((2, BINS))
    _count(counted, logits, begin, et.full((), unit))
    sums = _store_counts(counted, groups, bins)
    state[:] = _stack(begin | {"below": et.where(sought, 0.0, sums[1].sum(axis=0))})


@et.task
def next_digit(logits, top_p, groups, bins, before, sums, found, after, *, t):
    """Narrows the search by the counts of all parts and counts the next digit. The state of a
    finished row stays."""
    now, counted = before + 0.0, et.zeros((2, BINS))
    for _ in et.range((before[FIELDS.index("unit")] > 0.0).cast(et.i32)):
        s, g, f = _next_state(_fields(before), groups, bins, top_p)
        mine = bins[t, :, g, :]
        below = before[FIELDS.index("below")] + _before(groups[t, 1], g) + _before(mine[1], f)
        now[:] = _stack(s | {"below": et.where(s["again"], 0.0, below), "equals": mine[0, f]})
    for _ in et.range((now[FIELDS.index("unit")] > 0.0).cast(et.i32)):
        s = _fields(now)
        _count(counted, logits, s, s["unit"])
    _store_counts(counted, sums, found)
    after[:] = now


def draw(part: int) -> Any:
    @et.task
    def draw(logits, greedy, temperature, top_p, uniform, groups, bins, state, token):
        """Finishes the search. Then finds the part, the line in it and the token at which the sums
        of the candidates pass `uniform`. -1 if the search has had too few steps."""
        before = _fields(state[0])
        searching = before["unit"] > 0.0
        after, g, f = _next_state(before, groups, bins, top_p)
        top, rate = before["top"], before["rate"]
        unit, edge, ties = (et.where(searching, after[k], before[k])
                            for k in ("unit", "edge", "ties"))
        mine = bins[:, :, g, :]
        more = _before(groups[:, 1], g) + _before(mine[:, 1], f)
        below = state[:, FIELDS.index("below")] + et.where(searching, more, 0.0)
        equals = et.where(searching, mine[:, 0, f], state[:, FIELDS.index("equals")])
        each = et.where(edge < float(LAST), _weight(edge), 0.0)
        kept = _Candidates(ties, each, below, equals)
        total = kept.ends[kept.ends.shape[0] - 1]
        at, aim = kept.at(uniform * total)
        first, ends = at * part, et.minimum(at * part + part, logits.shape[0])
        ties, size = kept.kept_of(at), part
        for inner in LEVELS:
            lines = _lines(logits, top, rate, edge, first, ends, -(-size // inner), inner)
            kept = _Candidates(ties, each, *lines)
            at, aim = kept.at(aim)
            first, ties, size = first + at * inner, kept.kept_of(at), inner
        right = (et.abs(top) < NEVER) & (rate > 0.0) & (total > 0.0) & (temperature > 0.0)
        found = et.where(unit > 0.0, -1, et.minimum(first, logits.shape[0] - 1))
        token[:] = et.where(right, found, greedy)

    return draw


def _lines(
    logits: Any, top: Any, rate: Any, edge: Any, first: Any, ends: Any, lines: int, size: int
) -> tuple[Any, Any]:
    """For the tokens from `first` to `ends`, by lines: the weights of tokens before the edge, and
    the number of tokens on it."""

    starts = first + et.iota(lines) * size

    def at() -> Any:
        return starts[:, None] + et.iota(size)[None, :]

    def key() -> Any:
        return _key(et.gather(logits, et.minimum(at(), logits.shape[0] - 1)), top, rate)

    # Factors, not conditions: threads then load for many tokens at once.
    here, near = (at() < ends).cast(et.f32), (key() < et.minimum(edge, float(LAST))).cast(et.f32)
    on = (at() < ends).cast(et.f32) * (key() == edge).cast(et.f32)
    return (_weight(key()) * near * here).sum(axis=1), on.sum(axis=1)


class _Candidates:
    """The candidates among neighbours. Each neighbour has the weight `below` before the edge, and
    `equals` tokens of weight `each` on it, of which the first `ties` stay."""

    def __init__(self, ties: Any, each: Any, below: Any, equals: Any) -> None:
        self.kept = et.minimum(et.maximum(ties - (equals.cumsum(0) - equals), 0.0), equals)
        self.mass = below + self.kept * each
        self.ends = self.mass.cumsum(0)

    def at(self, aim: Any) -> tuple[Any, Any]:
        """The neighbour whose sum passes `aim`, and the rest of `aim` there. If rounding keeps the
        sums below, the last neighbour with a mass."""
        n = self.mass.shape[0]
        last = et.where(self.mass > 0.0, et.iota(n), 0).max(axis=0)
        found = et.minimum((self.ends <= aim).cast(et.i32).sum(axis=0), last)
        begins = et.where(et.iota(n) + 1 == found, self.ends, 0.0).sum(axis=0)
        return found, aim - begins

    def kept_of(self, k: Any) -> Any:
        return et.gather(self.kept, k.reshape(1))[0]


# ---- calls -----------------------------------------------------------------------------------


class Sampler:
    """Draws a token for each of the rows in `sampled` and overwrites its greedy token in `chosen`.

    p = softmax(logits / temperature). Candidates are the `top_k` largest tokens (0: all), of these
    all with a key of at most `reach`, and of these the smallest set of largest ones whose mass
    reaches `top_p` of theirs (1: all; at least one); the lowest token wins a tie. Then `uniform` in
    [0, 1) picks by the sums of the candidates in token order. Two log p that differ by less than
    2^-18 count as equal. A row without a temperature above 0, or with logits that are not finite,
    keeps its greedy token. The result of a row depends on its own logits and options alone.
    `origin` is the row of the logits: its own, or its changed copy behind all rows
    (`LogitsProcessor`).

    Q is the largest number of `search_steps` of a row. A launch without rows to draw has N = 0 and
    Q = 0 and neither computes nor waits.

    Cost on CUDA: a threshold takes three passes over the logits, in parts of at most `part` tokens
    (16 parts for 128 K), with a hop after each; the draw reads one part."""

    def __init__(self, logits: Logits, part: int = TILE) -> None:
        p, rows = logits.p, logits.rows
        self.p, self.given, self.logits, self.chosen = p, logits, logits.values, logits.chosen
        self.parts = -(-logits.vocab // part)
        self.part = -(-logits.vocab // self.parts)
        self.N, self.Q = et.dim("N", min=0, max=64), et.dim("Q", min=0, max=2 * DIGITS - 1)
        self.sampled = p.input("sampled", (self.N,), et.i32, bound=rows - 1, distinct=True)
        self.origin = p.input("origin", (self.N,), et.i32, bound=rows + logits.A - 1)
        self.temperature = p.input("temperature", (rows,), et.f32)
        self.top_k = p.input("top_k", (rows,), et.i32)
        self.top_p = p.input("top_p", (rows,), et.f32)
        self.reach = p.input("reach", (rows,), et.f32)
        self.uniform = p.input("uniform", (rows,), et.f32)
        self.processor = LogitsProcessor(logits)

    def add_calls(self) -> None:
        self.processor.add_calls()
        p, N, Q, sampled, origin = self.p, self.N, self.Q, self.sampled, self.origin
        ready, changed = self.given.ready, self.processor.changed
        steps = (Q + 1, N, self.parts)
        groups = p.scratch("draw_groups", (*steps, 2, GROUPS), et.f32)
        bins = p.scratch("draw_bins", (*steps, 2, GROUPS, GROUPS), et.f32)
        state = p.scratch("draw_state", (*steps, len(FIELDS)), et.f32)
        # Named events: derived ones would tie the logits to the event of the greedy choice.
        counted = p.events("counted", (Q + 1, N), count=self.parts)

        def cut(t: Any) -> slice:
            return slice(t * self.part, t * self.part + self.part)

        p.call(first_digit, grid=(N, self.parts), waits=lambda n, t: (ready[()], changed[()]),
               notifies=lambda n, t: counted[0, n],
               reads=lambda n, t: (self.logits[origin[n], cut(t)], self.given.tops[origin[n], :],
                                   self.temperature[sampled[n]], self.top_k[sampled[n]],
                                   self.top_p[sampled[n]], self.reach[sampled[n]]),
               writes=lambda n, t: (groups[0, n, t, :, :], bins[0, n, t, :, :, :],
                                    state[0, n, t, :]))
        with p.loop("step", Q) as at:
            p.call(next_digit, grid=(N, self.parts),
                   waits=lambda n, t: (ready[()], changed[()], counted[at, n]),
                   notifies=lambda n, t: counted[at + 1, n],
                   reads=lambda n, t: (self.logits[origin[n], cut(t)], self.top_p[sampled[n]],
                                       groups[at, n, :, :, :], bins[at, n, :, :, :, :],
                                       state[at, n, t, :]),
                   writes=lambda n, t: (groups[at + 1, n, t, :, :], bins[at + 1, n, t, :, :, :],
                                        state[at + 1, n, t, :]))
        p.call(draw(self.part), grid=(N,),
               reads=lambda n: (self.logits[origin[n], :], self.chosen[sampled[n]],
                                self.temperature[sampled[n]], self.top_p[sampled[n]],
                                self.uniform[sampled[n]], groups[Q, n, :, :, :],
                                bins[Q, n, :, :, :, :], state[Q, n, :, :]),
               writes=lambda n: self.chosen[sampled[n]])
