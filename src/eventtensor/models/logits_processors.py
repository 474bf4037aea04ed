"""Changes logits inside of the kernel before a token is chosen: biases of single tokens, penalties
for tokens of the history, and masks of tokens that may not come. `LogitsProcessor` defines the
numbers; sampler.py draws from them."""

from __future__ import annotations

from typing import Any

import eventtensor as et

from .batch_arrays import MAX_BIASES
from .decoder_tasks import choose
from .step import MAX_REQUESTS, cut

NEVER = 3e38  # a logit that is never chosen, if negative; a target that nothing reaches
TILE = 1024  # tokens of a row that one task takes, about
BYTE = 8  # bits


class Logits:
    """Of the first `rows` as the model gives them, and behind them of A rows that are changed.
    Whoever makes the first writes the largest of each of its tiles of a row, of `tile` tokens, to
    `tops` and notifies `ready`: an event of its own leaves the way to the greedy choice as it is.
    `chosen` gets the greedy tokens."""

    def __init__(self, p: et.Program, rows: Any, vocab: int, tile: int) -> None:
        self.p, self.rows, self.vocab, self.tile = p, rows, vocab, tile
        self.tiles = -(-vocab // tile)
        self.A = et.dim("A", min=0, max=MAX_REQUESTS)
        self.values = p.output("logits", (rows + self.A, vocab), et.f32)
        self.chosen = p.output("chosen", (rows,), et.i32)
        self.tops = p.scratch("tops", (rows + self.A, self.tiles), et.f32)
        self.ready = p.events("logits_ready", (), count=self.tiles)


def _bits(allowed: Any, count: Any) -> Any:
    """The first so many bits, the lowest of a byte first."""
    at = et.iota(count)
    one, two, four = (at // k % 2 for k in (1, 2, 4))
    power = (1 + one) * (1 + 3 * two) * (1 + 15 * four)
    return et.gather(allowed, at // BYTE) // power % 2


def _moved(logits: Any, biased: Any, bias: Any, tile: int) -> Any:
    """`biased` are numbers of tokens in this tile, or beyond it. Each has one place, so the sum of
    the places that name a token is its place; that of the others is the first, which adds 0."""
    places = et.histogram(biased, [et.iota(biased.shape[0])], tile)[0]
    return logits + et.gather(bias, et.gather(places, et.iota(logits.shape[0])))


def adjust(tile: int) -> Any:
    @et.task
    def adjust(given, biased, bias, allowed, masked, history, prompt, repetition, presence,
               frequency, changed, tops, best, best_at, *, i):
        logits, count = _moved(given, biased - i * tile, bias, tile), given.shape[0]
        answered = et.iota(history.shape[0]) >= prompt
        found = et.histogram(history - i * tile, [1, answered.cast(et.i32)], tile)
        seen, times = (et.gather(found[k], et.iota(count)).cast(et.f32) for k in (0, 1))
        again = et.where(logits > 0.0, logits / repetition, logits * repetition)
        lost = frequency * times + et.where(times > 0.0, presence, 0.0)
        new = et.where(seen > 0.0, again, logits) - lost
        fine = (_bits(allowed, count) > 0) | (masked == 0)
        kept = et.where(fine, new, -NEVER)
        top = kept.max(axis=0)
        changed[:] = kept
        tops[:] = et.zeros((tops.shape[0],)) + top
        best[:] = top
        best_at[:] = et.argmax(kept)

    return adjust


class LogitsProcessor:
    """The tokens of the rows in `adjusted`, by logits that are changed first.

    Tokens in the row's `biased` have what is at their place in `bias` added to their logits; -1 is
    none, as at the first place, where `bias` is 0. No token comes twice. Then tokens in its
    `history` (-1 is none) have their logits divided by `repetition` (multiplied, if negative);
    those in it from place `prompt` on lose `presence`, and `frequency` for each time. Where the row
    is `masked`, tokens without a bit in `allowed` are not chosen. What is changed lies behind the
    rows as they were, at row S + a of the logits, in f32. The likeliest of it becomes the row's
    greedy token, and whoever draws for the row reads it there.

    A launch without such rows has A = 0, and does and waits for nothing."""

    def __init__(self, logits: Logits) -> None:
        p, A = logits.p, logits.A
        self.logits = logits
        self.each = 2 * max(1, TILE // (2 * logits.tile))  # tiles of the head: whole bytes
        self.tile, self.count = self.each * logits.tile, -(-logits.tiles // self.each)
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

    def calls(self) -> None:
        x, p, adjusted, tile = self.logits, self.logits.p, self.adjusted, self.tile
        p.call(adjust(tile), grid=(x.A, self.count), waits=lambda a, i: x.ready[()],
               notifies=lambda a, i: self.changed[()],
               reads=lambda a, i: (x.values[adjusted[a], cut(i, tile)],
                                   self.biased[a, :], self.bias[a, :],
                                   self.allowed[a, cut(i, tile // BYTE)], self.masked[a],
                                   self.history[a, :], self.prompt[a],
                                   *(each[a] for each in self.penalties)),
               writes=lambda a, i: (x.values[x.rows + a, cut(i, tile)],
                                    x.tops[x.rows + a, cut(i, self.each)],
                                    self.best[a, i], self.best_at[a, i]))
        p.call(choose(tile), grid=(x.A,), name="choose_adjusted",
               reads=lambda a: (self.best[a, :], self.best_at[a, :]),
               writes=lambda a: x.chosen[adjusted[a]])
