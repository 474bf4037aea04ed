"""Tokens drawn by temperature, top-k and top-p, in the kernel: `Draws` says what that means.

A threshold of p is found digit by digit. In each step every part of a row counts its tokens by the
next digit, and what all parts have counted says where to look further.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import eventtensor as et

# A key is how far log p lies below the largest, in steps: smaller keys are more likely. Beyond the
# last key p is below 2e-28.
STEPS, KEYS = 1 << 18, 1 << 24
BUCKETS = 16  # one digit of a key: a reduction has 16 threads for each of its outputs
DIGITS = 6
# A task's part of a row: 16 KB of keys and weights, and 63 parts for 128 K tokens.
TILE = 2048
# Tokens that one thread adds up in order, and lines that are looked at together.
LINE, LINES = 32, 16

# What a part remembers of the search: the row's, the same in every part, and the last three its
# own. All are whole numbers up to 2^24, or masses.
FIELDS = ("unit", "start", "count", "mass", "want_count", "want_mass", "edge", "ties",
          "below", "equals", "equal_mass")
NEVER = 3e38  # a target that nothing reaches


def search_steps(top_k: int, top_p: float) -> int:
    """Steps that a row needs: a digit each, of one threshold or of both."""
    return DIGITS * (2 if top_k > 0 and top_p < 1 else 1)


# ---- parts of bodies -------------------------------------------------------------------------


def _keys(below: Any) -> Any:
    return (et.minimum(below, KEYS / STEPS - 1 / STEPS) * float(STEPS)).cast(et.i32)


def _histogram(below: Any, s: Any) -> Any:
    """How many, and their mass, for each value of the digit that is looked for. Weights are p but
    for a factor that a row shares."""
    key, weight = _keys(below), et.exp(-below)
    start, unit, edge = (s[FIELDS.index(k)].cast(et.i32) for k in ("start", "unit", "edge"))
    inside = (key >= start) & (key <= edge)
    digit = et.where(inside, (key - start) // et.maximum(unit, 1), BUCKETS)

    def here() -> Any:  # twice, so that no array of all pairs is kept
        return digit[None, :] == et.iota(BUCKETS)[:, None]

    mass = et.where(here(), weight[None, :], 0.0).sum(axis=1)
    return et.concat([here().cast(et.f32).sum(axis=1)[None, :], mass[None, :]], axis=0)


def _ceil(x: Any) -> Any:
    whole = x.cast(et.i32).cast(et.f32)
    return whole + (whole < x).cast(et.f32)


@dataclass(frozen=True)
class _Found:
    """The bucket in which the target is reached: what lies before it, and what is in it."""

    digit: Any
    count: Any
    mass: Any
    inside: Any
    inside_mass: Any

    @property
    def each(self) -> Any:
        return self.inside_mass / et.maximum(self.inside, 1.0)


def _find(counts: Any, s: dict[str, Any], want_mass: Any) -> _Found:
    """`counts` of the whole row. Where rounding keeps the target away it is the last bucket in
    which something is."""
    upto = s["count"] + counts[0].cumsum(0)
    upto_mass = s["mass"] + counts[1].cumsum(0)
    reached = (upto >= s["want_count"]) | (upto_mass >= want_mass)
    last = et.where(counts[0] > 0.0, et.iota(BUCKETS), 0).max(axis=0)
    digit = et.minimum((~reached).cast(et.i32).sum(axis=0), last)
    before = et.concat([s["count"].reshape(1), upto], axis=0)
    before_mass = et.concat([s["mass"].reshape(1), upto_mass], axis=0)
    return _Found(digit, *(et.gather(x, digit.reshape(1))[0]
                           for x in (before, before_mass, counts[0], counts[1])))


def _narrowed(state: Any, counts: Any, mine: Any, top_p: Any) -> Any:
    """The search after one more digit, of what the row and this part have counted. After the last
    digit it ends (unit 0), or goes on from the threshold of top-k to that of top-p."""
    s = {k: state[i] for i, k in enumerate(FIELDS)}
    share = et.where(top_p < 1.0, top_p, NEVER)
    first_mass = et.minimum(share * counts[1].sum(axis=0), NEVER)
    by_count = s["want_count"] < NEVER
    unknown = (s["want_mass"] < 0.0) & ~by_count
    want_mass = et.where(unknown, first_mass, et.where(by_count, NEVER, s["want_mass"]))
    f = _find(counts, s, want_mass)
    start = s["start"] + f.digit.cast(et.f32) * s["unit"]
    last = s["unit"] <= 1.0
    needed = et.where(by_count, s["want_count"] - f.count, _ceil((want_mass - f.mass) / f.each))
    ties = et.minimum(et.maximum(et.minimum(needed, f.inside), 1.0),
                      et.where(start == s["edge"], s["ties"], NEVER))
    again = last & by_count & (top_p < 1.0)
    begin = et.where(again, float(KEYS // BUCKETS), 0.0)
    below = s["below"] + et.where(et.iota(BUCKETS) < f.digit, mine[1], 0.0).sum(axis=0)
    equals, equal_mass = (et.gather(x, f.digit.reshape(1))[0] for x in (mine[0], mine[1]))
    return _stack((
        et.where(last, begin, s["unit"] / float(BUCKETS)),
        et.where(again, 0.0, start), et.where(again, 0.0, f.count), et.where(again, 0.0, f.mass),
        et.where(again, NEVER, s["want_count"]),
        et.where(again, top_p * (f.mass + ties * f.each), want_mass),
        et.where(last, start, s["edge"]), et.where(last, ties, s["ties"]),
        et.where(again, 0.0, below), equals, equal_mass,
    ))


def _stack(values: tuple[Any, ...]) -> Any:
    """Numbers as one tile, in one loop."""
    number, out = et.iota(len(values)), values[-1]
    for k, v in enumerate(values[:-1]):
        out = et.where(number == k, v, out)
    return out


# ---- task kinds ------------------------------------------------------------------------------


@et.task
def first_digit(logits, tops, temperature, top_k, below, counts, state):
    """How far below the top log p is in this part, and the first digit. A target of -1 is set when
    the mass of the row is known."""
    far = (tops.max(axis=0) - logits) / et.maximum(temperature, 1e-30)
    begin, rest = et.full((), float(KEYS // BUCKETS)), et.full((), float(KEYS))
    zero = et.zeros(())
    want = et.where(top_k > 0, top_k.cast(et.f32), NEVER)
    now = _stack((begin, zero, zero, zero, want, zero - 1.0, rest, rest, zero, zero, zero))
    state[:] = now
    below[:] = far
    counts[:] = _histogram(far, now)


@et.task
def next_digit(below, top_p, before, mine, state, counts, after):
    """What all parts of the row have counted says where to look; a row that is done only stays."""
    now, found = state + 0.0, et.zeros((2, BUCKETS))
    for _ in et.range((state[0] > 0.0).cast(et.i32)):
        now[:] = _narrowed(state, before.sum(axis=0), mine, top_p)
    for _ in et.range((now[0] > 0.0).cast(et.i32)):
        found[:] = _histogram(below, now)
    after[:] = now
    counts[:] = found


def draw(tile: int) -> Any:
    @et.task
    def draw(below, greedy, temperature, uniform, state, token):
        """The part, the line of it and the token at which the sums of what is kept pass `uniform`.
        -1 if the search has had too few steps."""
        unit, edge, ties = (state[0, FIELDS.index(k)] for k in ("unit", "edge", "ties"))
        parts = (state[:, FIELDS.index(k)] for k in ("below", "equals", "equal_mass"))
        part = _Kept(ties, *parts)
        total = part.ends[part.ends.shape[0] - 1]
        p, aim = part.at(uniform * total)
        key = edge.cast(et.i32)
        chunks = tile // (LINE * LINES)
        sums = [et.zeros((chunks, LINES)) for _ in range(3)]
        for c in et.range(chunks):
            lines = _weights(below, key, p * tile + c * (LINE * LINES), LINES)
            for x, out in zip(lines, sums, strict=True):
                out[c] = x.sum(axis=1)
        line = _Kept(part.kept_of(p), *(x.reshape(chunks * LINES) for x in sums))
        k, aim = line.at(aim)
        tokens = _weights(below, key, p * tile + k * LINE, 1)
        t, _ = _Kept(line.kept_of(k), *(x[0] for x in tokens)).at(aim)
        found = et.minimum(p * tile + k * LINE + t, below.shape[0] - 1)
        right = (total > 0.0) & (total < NEVER) & (temperature > 0.0)
        token[:] = et.where(right, et.where(unit > 0.0, -1, found), greedy)

    return draw


def _weights(below: Any, edge: Any, first: Any, lines: int) -> tuple[Any, Any, Any]:
    """Of the tokens from `first` on, in lines: weights of those before the edge, ones for those on
    it, their weights."""
    at = first + et.iota(lines * LINE)
    far = et.gather(below, et.minimum(at, below.shape[0] - 1)).reshape(lines, LINE)
    there, key = (at < below.shape[0]).reshape(lines, LINE), _keys(far)
    on = there & (key == edge)
    before = there & (key < edge)
    weight = et.exp(-far)
    return et.where(before, weight, 0.0), on.cast(et.f32), et.where(on, weight, 0.0)


class _Kept:
    """What is kept of neighbours, of which each has the weight `below` before the edge and `equals`
    tokens of the weight `equal_mass` on it; the first `ties` of these stay."""

    def __init__(self, ties: Any, below: Any, equals: Any, equal_mass: Any) -> None:
        free = et.maximum(ties - (equals.cumsum(0) - equals), 0.0)
        self.kept = et.minimum(free, equals)
        self.mass = below + self.kept * equal_mass / et.maximum(equals, 1.0)
        self.ends = self.mass.cumsum(0)

    def at(self, aim: Any) -> tuple[Any, Any]:
        """Whose sum passes `aim` (the last that has a mass if rounding keeps the sums below), and
        what is left of it there."""
        last = et.where(self.mass > 0.0, et.iota(self.mass.shape[0]), 0).max(axis=0)
        found = et.minimum((self.ends <= aim).cast(et.i32).sum(axis=0), last)
        begins = et.concat([et.zeros((1,)), self.ends], axis=0)
        return found, aim - et.gather(begins, found.reshape(1))[0]

    def kept_of(self, k: Any) -> Any:
        return et.gather(self.kept, k.reshape(1))[0]


# ---- calls -----------------------------------------------------------------------------------


class Draws:
    """Draws a token for each of the rows in `sampled`, over the greedy one in `chosen`.

    p = softmax(logits / temperature). Kept are the `top_k` largest (0: all), and of these the
    smallest set of largest ones whose mass reaches `top_p` of theirs (1: all; one at least), the
    lowest token first among equals. Then `uniform` in [0, 1) picks by the sums of what is kept, in
    token order. Logits are compared as p is, in steps of 2^-18 of log p: what differs by less
    counts as equal. A row without a temperature above 0, or with logits that are not finite, keeps
    its greedy token. What a row gives depends on its own logits and options alone.

    Whoever makes the logits writes the largest of each of its `tiles` of a row to `tops` and
    notifies `ready`: an event of its own leaves the way to the greedy choice as it is. Q is the
    most `search_steps` of a row. A launch without rows to draw has N = 0 and Q = 0, and does and
    waits for nothing.

    Cost on CUDA: a step is one hop, and for each part 2 * 16 * 2048 looks in shared memory by 256
    threads (some 2 us), over all blocks: 128 K tokens are 63 parts. The logits are read once."""

    def __init__(
        self, p: et.Program, rows: Any, logits: Any, chosen: Any, tiles: int, part: int = TILE
    ) -> None:
        self.p, self.logits, self.chosen, self.part = p, logits, chosen, part
        self.parts = -(-logits.shape[1] // part)
        self.N, self.Q = et.dim("N", min=0, max=64), et.dim("Q", min=0, max=2 * DIGITS)
        self.sampled = p.input("sampled", (self.N,), et.i32, bound=rows - 1, distinct=True)
        self.temperature = p.input("temperature", (rows,), et.f32)
        self.top_k = p.input("top_k", (rows,), et.i32)
        self.top_p = p.input("top_p", (rows,), et.f32)
        self.uniform = p.input("uniform", (rows,), et.f32)
        self.tops = p.scratch("tops", (rows, tiles), et.f32)
        self.ready = p.events("logits_ready", (), count=tiles)

    def calls(self) -> None:
        p, N, Q, sampled, row = self.p, self.N, self.Q, self.sampled, self.logits.shape[1]
        steps = (Q + 1, N, self.parts)
        below = p.scratch("draw_below", (N, row), et.f32)
        counts = p.scratch("draw_counts", (*steps, 2, BUCKETS), et.f32)
        state = p.scratch("draw_state", (*steps, len(FIELDS)), et.f32)

        def cut(t: Any) -> slice:
            return slice(t * self.part, t * self.part + self.part)

        p.call(first_digit, grid=(N, self.parts), waits=lambda n, t: self.ready[()],
               reads=lambda n, t: (self.logits[sampled[n], cut(t)], self.tops[sampled[n], :],
                                   self.temperature[sampled[n]], self.top_k[sampled[n]]),
               writes=lambda n, t: (below[n, cut(t)], counts[0, n, t, :, :], state[0, n, t, :]))
        with p.loop("step", Q) as at:
            p.call(next_digit, grid=(N, self.parts),
                   reads=lambda n, t: (below[n, cut(t)], self.top_p[sampled[n]],
                                       counts[at, n, :, :, :], counts[at, n, t, :, :],
                                       state[at, n, t, :]),
                   writes=lambda n, t: (counts[at + 1, n, t, :, :], state[at + 1, n, t, :]))
        p.call(draw(self.part), grid=(N,),
               reads=lambda n: (below[n, :], self.chosen[sampled[n]],
                                self.temperature[sampled[n]], self.uniform[sampled[n]],
                                state[Q, n, :, :]),
               writes=lambda n: self.chosen[sampled[n]])
