"""Which rows the next step has: a token for everyone who decodes, then chunks of prompts, and new
requests as long as there are pages, slots and rows."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from ..models.batch_arrays import Limits, StepToken
from .block_manager import Pages
from .request import Request


@dataclass(frozen=True)
class Step:
    """`taken`: how many rows of whom. The first rows are of prompts with log probabilities:
    `scored` says how many of whom, `first` how many in all; nobody gets their tokens. The next
    ones are of those in `chosen`, who get a token each. The first `wanted` rows are needed with
    their logits. `filled`: who has how many tokens in the cache when it is over, in which stay."""

    taken: list[tuple[Request, int]]
    scored: list[tuple[Request, int]]
    first: int
    chosen: list[Request]
    wanted: int
    rows: list[StepToken]
    tables: list[list[int]]
    filled: list[tuple[Request, int, int]]


class Scheduler:
    """First come, first served. If pages run out, the youngest gives its pages back and waits
    again, first in the queue; its tokens are computed anew. The oldest never gives way to others,
    so that every request comes to its end."""

    def __init__(
        self, limits: Limits, max_prefill_tokens: int | None = None,
        max_prefill_items: int | None = None,
    ) -> None:
        """While some request decodes, a step has at most `max_prefill_tokens` tokens of prompts:
        fewer make the steps of the others shorter, and prompts wait longer. `max_prefill_items`
        bounds their work items of attention, so that a step far into a prompt takes no longer."""
        self.limits, self.pages = limits, Pages(limits.pages, limits.page)
        self._max_prefill_tokens = limits.rows if max_prefill_tokens is None else max_prefill_tokens
        self._max_prefill_items = max_prefill_items
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []  # by arrival
        self.preempted = 0
        self._slots = list(range(limits.requests - 1, -1, -1))

    def add(self, request: Request) -> None:
        self.waiting.append(request)

    def remove(self, request: Request) -> None:
        """It is over, wherever it is; its pages are free."""
        if request in self.running:
            self._leave(request)
        elif request in self.waiting:
            self.waiting.remove(request)

    def schedule(self) -> Step | None:
        """None if there is nothing to do."""
        self._find_pages()
        room, taken = _Room(self.limits, self._max_prefill_items), list[tuple[Request, int]]()
        going = [(r, r.left) for r in self.running if r.goes_on]
        for request, left in going:
            if left <= 1:
                room.take(request, left, taken)
        if taken:
            room.rows = min(room.rows, self._max_prefill_tokens)
        for request, left in going:
            if left > 1:
                room.take(request, left, taken)
        while room.rows and room.items != 0 and self._admit():
            room.take(self.running[-1], self.running[-1].left, taken)
        return self._step(taken) if taken else None

    def begun(self, step: Step) -> None:
        """It was launched: what it computes counts as done for the step after it, as launches are
        in order."""
        for request, rows in step.taken:
            request.done += rows
        for row, request in enumerate(step.chosen, step.first):
            request.promised, request.row = request.promised + 1, row

    def ended(self, step: Step) -> None:
        """Full pages become known, of those who have stayed. The tokens before its own are known
        by now."""
        for request, done, stay in step.filled:
            if request.slot >= 0 and request.stay == stay:
                self.pages.fill(request.table, request.tokens, done)

    def _find_pages(self) -> None:
        """For the tokens of all that go on, the oldest first."""
        for request in [r for r in self.running if r.goes_on]:
            while request.slot >= 0 and not self.pages.grow(request.table, request.count):
                self._preempt(self.running[-1])

    def _preempt(self, request: Request) -> None:
        self._leave(request)
        self.waiting.appendleft(request)
        self.preempted += 1

    def _leave(self, request: Request) -> None:
        self.running.remove(request)
        self.pages.close(request.table)
        self._slots.append(request.slot)
        request.slot = -1

    def _admit(self) -> bool:
        """The next one, if there is a slot and if there are pages for all that is known of it."""
        if not self.waiting or not self._slots:
            return False
        request = self.waiting[0]
        request.table = self.pages.open(request.reusable)
        if not self.pages.grow(request.table, request.count):
            self.pages.close(request.table)
            return False
        self.waiting.popleft()
        request.slot, request.stay = self._slots.pop(), request.stay + 1
        request.admitted = request.admitted or time.monotonic()
        request.done = request.table.full * self.pages.size
        if not request.answer:
            request.reused = request.done
        self.running.append(request)
        return True

    def _step(self, taken: list[tuple[Request, int]]) -> Step:
        ends = [r for r, count in taken if count == r.left]
        chosen = sorted(ends, key=lambda r: not r.wants_logits)
        rows = {r: r.rows(count) for r, count in taken}
        lasts = [rows[r].pop() for r in chosen]
        scored, firsts = list[tuple[Request, int]](), list[StepToken]()
        for request, _ in taken:
            if request.scores is not None and len(rows[request]) > request.plain:
                more = rows[request][request.plain :]
                scored.append((request, len(more)))
                firsts += more
                del rows[request][request.plain :]
        tables: list[list[int]] = [[] for _ in range(self.limits.requests)]
        for request in self.running:
            tables[request.slot] = request.table.pages
        others = [x for r, _ in taken for x in rows[r]]
        filled = [(r, r.done + count, r.stay) for r, count in taken]
        wanted = len(firsts) + sum(r.wants_logits for r in ends)
        return Step(taken, scored, len(firsts), chosen, wanted, firsts + lasts + others, tables,
                    filled)


class _Room:
    """How many rows a step still takes, how many of them with logits, and how many work items of
    attention for prompts (None: any)."""

    def __init__(self, limits: Limits, items: int | None) -> None:
        self.rows, self.chosen, self.items = limits.rows, limits.chosen, items
        self._split_tokens = limits.split_tokens

    def take(self, request: Request, left: int, taken: list[tuple[Request, int]]) -> None:
        """`left`: of its tokens, those that are not in the cache."""
        plain = left - 1 if request.scores is None else request.plain
        most = min(left, self.rows, plain + self.chosen)
        count = most if left <= 1 else self._within_items(request.done, most)
        if count:
            taken.append((request, count))
            self.rows -= count
            self.chosen -= max(0, count - plain)

    def _within_items(self, first: int, rows: int) -> int:
        """Of so many rows from a position on those that there are items for. The first prompt has
        one at least. Eights, because a launch is bound for each number of rows."""
        if not self.items or not rows:
            return rows if self.items is None else 0
        each = (first + rows - 1) // self._split_tokens + 1
        if each * rows > self.items:
            most = max(self.items // each, 1)
            rows = most - most % 8 if most > 8 else most
        self.items = max(0, self.items - each * rows)
        return rows
