"""The rows of a step as the arrays that the kernel takes. Everything that can be wrong with them is
an error here, before anything runs: the proof of the kernel takes it for granted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import BoundViolated, DimOutOfRange, FactViolated
from .checkpoint import Array

_MADE = "see the sizes that the runner was made with: pages, positions, requests, rows"

@dataclass(frozen=True)
class Row:
    """One token of a step: request (its row of the page table), token, and position."""

    request: int
    token: int
    position: int


@dataclass(frozen=True)
class Choice:
    """How the token after a row is chosen: temperature 0 takes the likeliest, top_k 0 and top_p 1
    leave all. `uniform` in [0, 1) is the chance of this one token."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    uniform: float = 0.0


def chance(seed: int, position: int) -> float:
    """`uniform` of the token after this position: seed and position alone decide it."""
    key = np.array([seed, position], np.uint64)
    return float(np.random.Generator(np.random.Philox(key=key)).random(dtype=np.float32))


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
    def splits(self) -> int:
        """Of the longest request."""
        return -(-self.positions // (self.page * self.split))

    @property
    def table(self) -> tuple[int, int, int]:
        return self.requests, self.splits, self.split


@dataclass(frozen=True)
class Placed:
    """Rows as arrays; `work`: room for their items of attention, of a head."""

    token: Array
    position: Array
    request: Array
    slot: Array
    work: int


class Tables:
    """The pages of each request, as the kernel reads them, and how often each page is named."""

    def __init__(self, limits: Limits, table: Array) -> None:
        self._limits, self._flat = limits, table.reshape(limits.requests, -1)
        self._known: list[list[int]] = []
        self._lengths = np.zeros(0, np.int64)
        self._named = np.zeros(limits.pages, np.int64)

    def set(self, tables: Sequence[Sequence[int]]) -> bool:
        """False if they are those of the step before. Only those that are new cost something."""
        wanted = [list(t) for t in tables]
        if wanted == self._known:
            return False
        self._check(wanted)
        before = self._known + [[]] * (len(wanted) - len(self._known))
        after = wanted + [[]] * (len(before) - len(wanted))
        for k, (old, new) in enumerate(zip(before, after, strict=True)):
            if old != new:
                np.subtract.at(self._named, old, 1)
                np.add.at(self._named, new, 1)
                self._flat[k, : len(new)] = new
        self._known = wanted
        self._lengths = np.array([len(t) for t in wanted], np.int64)
        return True

    def _check(self, tables: list[list[int]]) -> None:
        most, room = self._limits, self._flat.shape[1]
        if not 1 <= len(tables) <= most.requests:
            raise DimOutOfRange(f"there are {len(tables)} page tables; the runner takes 1 to "
                                f"{most.requests}", hint=_MADE)
        for k, pages in enumerate(tables):
            if len(pages) > room:
                raise DimOutOfRange(f"request {k} has {len(pages)} pages; the runner takes {room}",
                                    hint=_MADE)
            if pages and not 0 <= min(pages) <= max(pages) < most.pages:
                raise BoundViolated(f"request {k} has pages {min(pages)} to {max(pages)}; the "
                                    f"cache has {most.pages}", hint=_MADE)

    def place(self, rows: Sequence[Row]) -> Placed:
        token, position, request = np.array(
            [(r.token, r.position, r.request) for r in rows], np.int64).T
        return self._placed(token, position, request)

    def next(self, before: Placed, tokens: Array) -> Placed:
        """The rows that come after these, one of each request, with the tokens that were chosen.
        Where all stay on their pages, what was true of these is true of those."""
        count, limits = len(tokens), self._limits
        position, request = before.position[:count] + 1, before.request[:count]
        if count < len(before.token) or not (position % limits.page).all():
            return self._placed(tokens.astype(np.int64), position, request)
        _within(tokens, limits.vocab, (request, position), "token", "the vocabulary has")
        return Placed(tokens, position, request, before.slot + 1, before.work)

    def _placed(self, token: Array, position: Array, request: Array) -> Placed:
        limits, at = self._limits, (request, position)
        _within(token, limits.vocab, at, "token", "the vocabulary has")
        _within(request, len(self._known), at, "request", "the page tables are")
        _within(position, limits.positions, at, "position", "the runner takes")
        _within(position, self._lengths[request] * limits.page, at, "position", "its pages hold")
        page = self._flat[request, position // limits.page]
        slot = page * limits.page + position % limits.page
        self._check_writes(at, page, slot)
        work = int((position // (limits.page * limits.split) + 1).sum())
        return Placed(token, position, request, slot, work)

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


def check_choices(choices: Sequence[Choice], chosen: int) -> None:
    if len(choices) != chosen:
        raise DimOutOfRange(f"there are {len(choices)} choices for {chosen} chosen rows",
                            hint="give one for each row that gets a token, or none at all")
    for k, c in enumerate(choices):
        fine = (np.isfinite(c.temperature) and c.temperature >= 0 and c.top_k >= 0
                and 0 < c.top_p <= 1 and 0 <= c.uniform < 1)
        if not fine:
            raise BoundViolated(f"row {k} has {c}", hint="temperature >= 0, top_k >= 0, "
                                "0 < top_p <= 1, 0 <= uniform < 1")
