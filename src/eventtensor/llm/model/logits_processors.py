"""Changes logits inside of the kernel before a token is chosen: biases of single tokens, penalties
for tokens of the history, and masks of tokens that may not come. `LogitsProcessor` defines the
numbers; sampler.py draws from them."""

from __future__ import annotations

from typing import Any

import eventtensor as et

from .decoder_tasks import choose
from .step import cut
from .step_limits import MAX_BIASES, MAX_REQUESTS

NEVER = 3e38  # negative: the logit of a masked token; positive: a target that no sum reaches
TILE = 1024  # vocabulary entries of a task, about
BYTE = 8  # bits


class Logits:
    """The logits of the first `rows` tokens as the model computes them, and behind them A rows of
    changed logits. The head writes the largest logit of each tile of `tile` vocabulary entries to
    `tops` and notifies `ready`; this separate event does not delay the greedy choice. `chosen` gets
    the greedy tokens."""

    def __init__(self, p: et.Program, rows: Any, vocab: int, tile: int) -> None:
        self.p, self.rows, self.vocab, self.tile = p, rows, vocab, tile
        self.tiles = -(-vocab // tile)
        self.A = et.dim("A", min=0, max=MAX_REQUESTS)
        self.values = p.output("logits", (rows + self.A, vocab), et.f32)
        self.chosen = p.output("chosen", (rows,), et.i32)
        self.tops = p.scratch("tops", (rows + self.A, self.tiles), et.f32)
        self.ready = p.events("logits_ready", (), count=self.tiles)


def _bits(allowed: Any, count: Any) -> Any:
    """The first `count` bits, the lowest of a byte first."""
    at = et.iota(count)
    one, two, four = (at // k % 2 for k in (1, 2, 4))
    power = (1 + one) * (1 + 3 * two) * (1 + 15 * four)
    return et.gather(allowed, at // BYTE) // power % 2


def _with_bias(logits: Any, biased: Any, bias: Any, tile: int) -> Any:
    """`biased` are token ids relative to this tile; ids beyond it have no effect. An id occurs
    once, so the sum of its places is its place. Tokens without a bias get the first place, which
    adds 0."""
    places = et.histogram(biased, [et.iota(biased.shape[0])], tile)[0]
    return logits + et.gather(bias, et.gather(places, et.iota(logits.shape[0])))


def adjust(tile: int) -> Any:
    @et.task
    def adjust(given, biased, bias, allowed, masked, history, prompt, repetition, presence,
               frequency, changed, tops, best, best_at, *, i):
        logits, count = _with_bias(given, biased - i * tile, bias, tile), given.shape[0]
        answered = et.iota(history.shape[0]) >= prompt
        found = et.histogram(history - i * tile, [1, answered.cast(et.i32)], tile)
        seen, times = (et.gather(found[k], et.iota(count)).cast(et.f32) for k in (0, 1))
        repeated = et.where(logits > 0.0, logits / repetition, logits * repetition)
        penalty = frequency * times + et.where(times > 0.0, presence, 0.0)
        new = et.where(seen > 0.0, repeated, logits) - penalty
        is_allowed = (_bits(allowed, count) > 0) | (masked == 0)
        masked_logits = et.where(is_allowed, new, -NEVER)
        top = masked_logits.max(axis=0)
        changed[:] = masked_logits
        tops[:] = et.zeros((tops.shape[0],)) + top
        best[:] = top
        best_at[:] = et.argmax(masked_logits)

    return adjust


class LogitsProcessor:
    """Changes the logits of the rows in `adjusted` and chooses their greedy tokens again.

    1. Each token of `biased` gets the entry of `bias` at the same place; -1 is no token, as at the
    first place, whose bias is 0. A token occurs once.
    2. Tokens of `history` (-1 is no token) have their logits divided by `repetition`, or multiplied
    if negative. Tokens from place `prompt` on also lose `presence`, and `frequency` for each time.
    3. In a `masked` row, tokens without a bit in `allowed` are excluded.

    The changed logits are row S + a of the logits, in f32, behind all rows of the model. The
    sampler reads them there. A launch without such rows has A = 0 and neither computes nor waits.
    """

    def __init__(self, logits: Logits) -> None:
        p, A = logits.p, logits.A
        self.logits = logits
        self.tiles_per_task = 2 * max(1, TILE // (2 * logits.tile))  # of the head: whole bytes
        self.tile = self.tiles_per_task * logits.tile
        self.count = -(-logits.tiles // self.tiles_per_task)
        H, B = et.dim("H", max=1 << 20), et.dim("B", max=1 + MAX_BIASES)
        self.adjusted = p.input("adjusted", (A,), et.i32, bound=logits.rows - 1, distinct=True)
        self.biased = p.input("biased", (A, B), et.i32)
        self.bias = p.input("bias", (A, B), et.f32)
        self.allowed = p.input("allowed", (A, -(-logits.vocab // BYTE)), et.u8)
        self.masked = p.input("masked", (A,), et.i32)
        self.history = p.input("history", (A, H), et.i32)
        self.prompt = p.input("prompt", (A,), et.i32)
        self.penalties = tuple(p.input(name, (A,), et.f32)
                               for name in ("repetition", "presence", "frequency"))
        self.best = p.scratch("adjusted_best", (A, self.count), et.f32)
        self.best_at = p.scratch("adjusted_at", (A, self.count), et.i32)
        self.changed = p.events("logits_changed", (), count=A * self.count)

    def add_calls(self) -> None:
        x, p, adjusted, tile = self.logits, self.logits.p, self.adjusted, self.tile
        p.call(adjust(tile), grid=(x.A, self.count), waits=lambda a, i: x.ready[()],
               notifies=lambda a, i: self.changed[()],
               reads=lambda a, i: (x.values[adjusted[a], cut(i, tile)],
                                   self.biased[a, :], self.bias[a, :],
                                   self.allowed[a, cut(i, tile // BYTE)], self.masked[a],
                                   self.history[a, :], self.prompt[a],
                                   *(each[a] for each in self.penalties)),
               writes=lambda a, i: (x.values[x.rows + a, cut(i, tile)],
                                    x.tops[x.rows + a, cut(i, self.tiles_per_task)],
                                    self.best[a, i], self.best_at[a, i]))
        p.call(choose(tile), grid=(x.A,), name="choose_adjusted",
               reads=lambda a: (self.best[a, :], self.best_at[a, :]),
               writes=lambda a: x.chosen[adjusted[a]])
