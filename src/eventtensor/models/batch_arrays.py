"""The rows of a step as the arrays that the kernel takes. Everything that can be wrong with them is
an error here, before anything runs: the proof of the kernel takes it for granted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite

import numpy as np

from ..errors import BoundViolated, DimOutOfRange, FactViolated
from .checkpoint import Array

MAX_BIASES = 1024  # tokens of a row
_MOST_BIAS = 1e30  # so that a logit stays finite
_U64 = (1 << 64) - 1
_MADE = "see the sizes that the runner was made with: pages, positions, requests, rows"

@dataclass(frozen=True)
class StepToken:
    """One token of a step: request (its row of the page table), token, and position. Token ~k is
    the one that row k of the step before gets, which may still run."""

    request: int
    token: int
    position: int


def is_decode_only(rows: Sequence[StepToken], chosen: int) -> bool:
    """True if every row has a request of its own, and gets a token."""
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
    """How the token after a row is chosen: temperature 0 takes the likeliest, top_k 0, min_p 0 and
    top_p 1 leave all. `uniform` in [0, 1) is the chance of this one token."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    uniform: float = 0.0
    min_p: float = 0.0
    change: LogitsChange | None = None


def chance(seed: int, position: int) -> float:
    """`uniform` of the token after this position: seed and position alone decide it. It is 24 bits
    of a number of SplitMix64, which starts at the seed."""
    x = (seed + (position + 1) * 0x9E3779B97F4A7C15) & _U64
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _U64
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _U64
    return ((x ^ x >> 31) >> 40) / (1 << 24)


@dataclass(frozen=True)
class Limits:
    """What a runner was made for. A page has `page` tokens, a split of attention `split` pages."""

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
        """Of a work item of attention."""
        return self.page * self.split

    @property
    def splits(self) -> int:
        """Of the longest request."""
        return -(-self.positions // self.split_tokens)

    @property
    def table(self) -> tuple[int, int, int]:
        return self.requests, self.splits, self.split


@dataclass(frozen=True)
class BatchArrays:
    """Rows as arrays; `work`: room for their items of attention, of a head."""

    token: Array
    position: Array
    request: Array
    slot: Array
    work: int

    def fed(self) -> list[tuple[int, int, int]]:
        """Which rows have tokens of the step before: first row, number there, and how many follow
        each other in both."""
        at = np.flatnonzero(self.token < 0)
        if not len(at):
            return []
        far = at + self.token[at]  # the same for neighbours that stay neighbours
        ends = np.flatnonzero((np.diff(at) != 1) | (np.diff(far) != 0)) + 1
        return [(int(run[0]), int(~self.token[run[0]]), len(run)) for run in np.split(at, ends)]


class BlockTables:
    """The pages of each request, as the kernel reads them, and how often each page is named."""

    def __init__(self, limits: Limits, table: Array) -> None:
        self._limits, self._flat = limits, table.reshape(limits.requests, -1)
        self._known: list[list[int]] = []
        self._lengths = np.zeros(0, np.int64)
        self._named = np.zeros(limits.pages, np.int64)

    def set(self, tables: Sequence[Sequence[int]]) -> list[int]:
        """The requests whose pages are not those of the step before. Only they cost something."""
        wanted = [list(t) for t in tables]
        if wanted == self._known:
            return []
        before = self._known + [[]] * (len(wanted) - len(self._known))
        after = wanted + [[]] * (len(before) - len(wanted))
        pairs = [(k, old, new) for k, (old, new) in enumerate(zip(before, after, strict=True))
                 if old != new]
        self._check(len(wanted), [(k, new) for k, _, new in pairs])
        for k, old, new in pairs:
            kept = len(old) if new[: len(old)] == old else 0  # it only grows, mostly
            np.subtract.at(self._named, old[kept:], 1)
            np.add.at(self._named, new[kept:], 1)
            self._flat[k, kept : len(new)] = new[kept:]
        self._known = wanted
        self._lengths = np.array([len(t) for t in wanted], np.int64)
        return [k for k, _, _ in pairs]

    def length(self, request: int) -> int:
        """Pages that it has."""
        return len(self._known[request]) if request < len(self._known) else 0

    def _check(self, count: int, tables: list[tuple[int, list[int]]]) -> None:
        most, room = self._limits, self._flat.shape[1]
        if not 1 <= count <= most.requests:
            raise DimOutOfRange(f"there are {count} page tables; the runner takes 1 to "
                                f"{most.requests}", hint=_MADE)
        for k, pages in tables:
            if len(pages) > room:
                raise DimOutOfRange(f"request {k} has {len(pages)} pages; the runner takes {room}",
                                    hint=_MADE)
            if pages and not 0 <= min(pages) <= max(pages) < most.pages:
                raise BoundViolated(f"request {k} has pages {min(pages)} to {max(pages)}; the "
                                    f"cache has {most.pages}", hint=_MADE)

    def place(self, rows: Sequence[StepToken], before: int = 0) -> BatchArrays:
        """`before`: how many tokens the step before chooses."""
        limits = self._limits
        token, position, request = np.array(
            [(r.token, r.position, r.request) for r in rows], np.int64).T
        at, fed = (request, position), token < 0
        if fed.any():
            _within(~token[fed], before, (request[fed], position[fed]), "the token of row",
                    "tokens of the step before:")
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
        """Each row writes its entry of the cache: nobody else may, and no other request may read
        it meanwhile."""
        if len(set(slot.tolist())) < len(slot):
            where, counts = np.unique(slot, return_counts=True)
            twice = int(np.argmax(slot == where[counts > 1][0]))
            raise FactViolated(f"two rows write what {_text(at, twice)} writes",
                               hint="each position of a request comes once in a step")
        if self._named[page].max() > 1:
            k = int(np.argmax(self._named[page] > 1))
            raise FactViolated(f"{_text(at, k)} is written to page {page[k]}, which the page "
                               f"tables name {self._named[page[k]]} times",
                               hint="a page that is written belongs to one request, once")


Places = tuple[Array, Array]  # request and position of each row, for errors


def _within(value: Array, end: Array | int, at: Places, what: str, whose: str) -> None:
    wrong = (value < 0) | (value >= end)
    if not wrong.any():
        return
    k = int(np.argmax(wrong))
    most = int(np.broadcast_to(end, value.shape)[k])
    raise BoundViolated(f"{_text(at, k)} has {what} {value[k]}; {whose} {most}", hint=_MADE)


def _text(at: Places, k: int) -> str:
    return f"row {k} (request {at[0][k]}, position {at[1][k]})"


def check_counts(limits: Limits, rows: int, chosen: int) -> None:
    if not 1 <= rows <= limits.rows:
        raise DimOutOfRange(f"the step has {rows} rows; the runner takes 1 to {limits.rows}",
                            hint=_MADE)
    if not 1 <= chosen <= min(rows, limits.chosen):
        raise DimOutOfRange(f"{chosen} of {rows} rows get a token; it must be 1 to "
                            f"{min(rows, limits.chosen)}", hint=_MADE)


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


def check_changes(changes: Sequence[LogitsChange], limits: Limits) -> None:
    wide = -(-limits.vocab // 8)
    for c in changes:
        if len(c.history) > limits.positions:
            raise DimOutOfRange(f"a row has {len(c.history)} tokens before it; the runner takes "
                                f"{limits.positions}", hint=_MADE)
        if c.allowed is not None and c.allowed.shape != (wide,):
            raise DimOutOfRange(f"a row has bits of shape {c.allowed.shape} for its tokens; it "
                                f"must be {(wide,)}", hint="one bit for each token")
        if len(c.bias) > MAX_BIASES:
            raise DimOutOfRange(f"a row has biases for {len(c.bias)} tokens; it may have "
                                f"{MAX_BIASES}", hint=_MADE)
        if not all(0 <= t < limits.vocab and abs(b) <= _MOST_BIAS for t, b in c.bias.items()):
            raise BoundViolated(f"a row has biases for tokens beyond 0 to {limits.vocab - 1}, or "
                                f"some beyond {_MOST_BIAS:g}", hint="tokens of this model")
        if not (np.isfinite((c.repetition, c.presence, c.frequency)).all() and c.repetition > 0):
            raise BoundViolated(f"a row has penalties {c.repetition}, {c.presence} and "
                                f"{c.frequency}", hint="numbers, that of repetition above 0")
