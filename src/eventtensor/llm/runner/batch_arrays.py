"""The batch of a step as arrays for the kernel: tokens, block tables, sampling parameters. Every
assumption that the proof of the kernel makes about them is checked here, before a launch.
step_inputs.py copies the arrays to the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite

import numpy as np

from ...errors import BoundViolated, DimOutOfRange, FactViolated
from ..array_types import Array
from ..model.step_limits import MAX_BIASES

_MAX_BIAS = 1e30  # so that a logit stays finite
_U64 = (1 << 64) - 1
_HINT = "see the sizes that the runner was made with: pages, positions, requests, rows"


@dataclass(frozen=True)
class StepToken:
    """One token of a step: its request (a row of the block table), its id and its position. Id ~k
    stands for token k that the step before samples, which may still run."""

    request: int
    token: int
    position: int


def is_decode_only(rows: Sequence[StepToken], chosen: int) -> bool:
    """True if each token is the newest of its own sequence and gets a successor."""
    return chosen == len(rows) == len({r.request for r in rows})


@dataclass(frozen=True)
class LogitsChange:
    """How the logits of a sequence change before its token is chosen (`LogitsProcessor` does it).
    `history` are the tokens so far, those from `prompt` on the answer. `allowed` has a bit for each
    token that may come, the lowest of a byte first; None allows all. `bias` is added to the logits
    of some tokens."""

    history: Array
    prompt: int
    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0
    allowed: Array | None = None
    bias: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class TokenChoice:
    """How a token is sampled. Temperature 0 takes the likeliest token; top_k 0, min_p 0 and top_p 1
    exclude none. `uniform` in [0, 1) is the random number of this one token."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    uniform: float = 0.0
    min_p: float = 0.0
    change: LogitsChange | None = None


def chance(seed: int, position: int) -> float:
    """`uniform` of the token after this position. Seed and position alone decide it: it is 24 bits
    of a number of SplitMix64 that starts at the seed."""
    x = (seed + (position + 1) * 0x9E3779B97F4A7C15) & _U64
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _U64
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _U64
    return ((x ^ x >> 31) >> 40) / (1 << 24)


@dataclass(frozen=True)
class RunnerLimits:
    """The sizes of a runner. `rows`: the most tokens of a step; `chosen`: the most sampled ones. A
    page has `page` tokens, a split of attention `split` pages."""

    vocab: int
    rows: int
    chosen: int
    requests: int
    positions: int
    pages: int
    page: int
    split: int

    @property
    def split_tokens(self) -> int:
        """Tokens of a split of attention."""
        return self.page * self.split

    @property
    def splits(self) -> int:
        """Splits of the longest sequence."""
        return -(-self.positions // self.split_tokens)

    @property
    def table(self) -> tuple[int, int, int]:
        """The shape of the block table."""
        return self.requests, self.splits, self.split


@dataclass(frozen=True)
class BatchArrays:
    """The tokens of a step as arrays. `work`: a bound of their work items of attention, for a
    head."""

    token: Array
    position: Array
    request: Array
    slot: Array
    work: int

    def chained_tokens(self) -> list[tuple[int, int, int]]:
        """The runs of tokens that the step before samples: first place here, first number there,
        and length."""
        at = np.flatnonzero(self.token < 0)
        if not len(at):
            return []
        offset = at + self.token[at]  # the same for neighbours in both steps
        ends = np.flatnonzero((np.diff(at) != 1) | (np.diff(offset) != 0)) + 1
        return [(int(run[0]), int(~self.token[run[0]]), len(run)) for run in np.split(at, ends)]


class BlockTables:
    """The pages of each request in the layout of the kernel, and the references to each page."""

    def __init__(self, limits: RunnerLimits, table: Array) -> None:
        self._limits, self._flat = limits, table.reshape(limits.requests, -1)
        self._known: list[list[int]] = []
        self._lengths = np.zeros(0, np.int64)
        self._references = np.zeros(limits.pages, np.int64)

    def set(self, tables: Sequence[Sequence[int]]) -> list[int]:
        """Sets the pages of all requests. Returns the requests with other pages than in the step
        before; the others cost nothing."""
        wanted = [list(t) for t in tables]
        if wanted == self._known:
            return []
        before = self._known + [[]] * (len(wanted) - len(self._known))
        after = wanted + [[]] * (len(before) - len(wanted))
        pairs = [(k, old, new) for k, (old, new) in enumerate(zip(before, after, strict=True))
                 if old != new]
        self._check(len(wanted), [(k, new) for k, _, new in pairs])
        for k, old, new in pairs:
            kept = len(old) if new[: len(old)] == old else 0  # mostly it only grows
            np.subtract.at(self._references, old[kept:], 1)
            np.add.at(self._references, new[kept:], 1)
            self._flat[k, kept : len(new)] = new[kept:]
        self._known = wanted
        self._lengths = np.array([len(t) for t in wanted], np.int64)
        return [k for k, _, _ in pairs]

    def num_pages(self, request: int) -> int:
        """The number of pages of a request."""
        return len(self._known[request]) if request < len(self._known) else 0

    def _check(self, count: int, tables: list[tuple[int, list[int]]]) -> None:
        most, room = self._limits, self._flat.shape[1]
        if not 1 <= count <= most.requests:
            raise DimOutOfRange(f"there are {count} page tables; the runner takes 1 to "
                                f"{most.requests}", hint=_HINT)
        for k, pages in tables:
            if len(pages) > room:
                raise DimOutOfRange(f"request {k} has {len(pages)} pages; the runner takes {room}",
                                    hint=_HINT)
            if pages and not 0 <= min(pages) <= max(pages) < most.pages:
                raise BoundViolated(f"request {k} has pages {min(pages)} to {max(pages)}; the "
                                    f"cache has {most.pages}", hint=_HINT)

    def place(self, rows: Sequence[StepToken], before: int = 0) -> BatchArrays:
        """Checks the tokens of a step and returns their arrays. `before`: the number of tokens that
        the step before samples."""
        limits = self._limits
        token, position, request = np.array(
            [(r.token, r.position, r.request) for r in rows], np.int64).T
        at, is_chained = (request, position), token < 0
        if is_chained.any():
            _within(~token[is_chained], before, (request[is_chained], position[is_chained]),
                    "the token of row", "tokens of the step before:")
        _within(np.maximum(token, 0), limits.vocab, at, "token", "the vocabulary has")
        _within(request, len(self._known), at, "request", "the page tables are")
        _within(position, limits.positions, at, "position", "the runner takes")
        _within(position, self._lengths[request] * limits.page, at, "position", "its pages hold")
        page = self._flat[request, position // limits.page]
        slot = page * limits.page + position % limits.page
        self._check_writes(at, page, slot)
        work = int((position // limits.split_tokens + 1).sum())
        return BatchArrays(token, position, request, slot, work)

    def _check_writes(self, at: Places, page: Array, slot: Array) -> None:
        """Checks that each token writes an entry of the cache that no other token writes and no
        other request reads."""
        if len(set(slot.tolist())) < len(slot):
            where, counts = np.unique(slot, return_counts=True)
            twice = int(np.argmax(slot == where[counts > 1][0]))
            raise FactViolated(f"two rows write what {_text(at, twice)} writes",
                               hint="each position of a request comes once in a step")
        if self._references[page].max() > 1:
            k = int(np.argmax(self._references[page] > 1))
            raise FactViolated(f"{_text(at, k)} is written to page {page[k]}, which the page "
                               f"tables name {self._references[page[k]]} times",
                               hint="a page that is written belongs to one request, once")


Places = tuple[Array, Array]  # request and position of each row, for errors


def _within(value: Array, end: Array | int, at: Places, what: str, whose: str) -> None:
    wrong = (value < 0) | (value >= end)
    if not wrong.any():
        return
    k = int(np.argmax(wrong))
    most = int(np.broadcast_to(end, value.shape)[k])
    raise BoundViolated(f"{_text(at, k)} has {what} {value[k]}; {whose} {most}", hint=_HINT)


def _text(at: Places, k: int) -> str:
    return f"row {k} (request {at[0][k]}, position {at[1][k]})"


def check_counts(limits: RunnerLimits, rows: int, chosen: int) -> None:
    if not 1 <= rows <= limits.rows:
        raise DimOutOfRange(f"the step has {rows} rows; the runner takes 1 to {limits.rows}",
                            hint=_HINT)
    if not 1 <= chosen <= min(rows, limits.chosen):
        raise DimOutOfRange(f"{chosen} of {rows} rows get a token; it must be 1 to "
                            f"{min(rows, limits.chosen)}", hint=_HINT)


def check_choices(choices: Sequence[TokenChoice], chosen: int) -> None:
    if len(choices) != chosen:
        raise DimOutOfRange(f"there are {len(choices)} choices for {chosen} chosen rows",
                            hint="give one for each row that gets a token, or none at all")
    for k, c in enumerate(choices):
        fine = (isfinite(c.temperature) and c.temperature >= 0 and c.top_k >= 0
                and 0 < c.top_p <= 1 and 0 <= c.uniform < 1 and 0 <= c.min_p <= 1)
        if not fine:
            raise BoundViolated(f"row {k} has {c}", hint="temperature >= 0, top_k >= 0, "
                                "0 < top_p <= 1, 0 <= uniform < 1, 0 <= min_p <= 1")


def check_changes(changes: Sequence[LogitsChange], limits: RunnerLimits) -> None:
    wide = -(-limits.vocab // 8)
    for c in changes:
        if len(c.history) > limits.positions:
            raise DimOutOfRange(f"a row has {len(c.history)} tokens before it; the runner takes "
                                f"{limits.positions}", hint=_HINT)
        if c.allowed is not None and c.allowed.shape != (wide,):
            raise DimOutOfRange(f"a row has bits of shape {c.allowed.shape} for its tokens; it "
                                f"must be {(wide,)}", hint="one bit for each token")
        if len(c.bias) > MAX_BIASES:
            raise DimOutOfRange(f"a row has biases for {len(c.bias)} tokens; it may have "
                                f"{MAX_BIASES}", hint=_HINT)
        if not all(0 <= t < limits.vocab and abs(b) <= _MAX_BIAS for t, b in c.bias.items()):
            raise BoundViolated(f"a row has biases for tokens beyond 0 to {limits.vocab - 1}, or "
                                f"some beyond {_MAX_BIAS:g}", hint="tokens of this model")
        if not (np.isfinite((c.repetition, c.presence, c.frequency)).all() and c.repetition > 0):
            raise BoundViolated(f"a row has penalties {c.repetition}, {c.presence} and "
                                f"{c.frequency}", hint="numbers, that of repetition above 0")
