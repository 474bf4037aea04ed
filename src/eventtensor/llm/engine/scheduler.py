"""Continuous batching: the scheduler chooses the tokens of the next step.

A step has one token of each request that decodes, then chunks of prompts (prefill), then tokens of
new requests, as long as there are KV blocks, slots and tokens in its budget. The scheduler launches
nothing and reads no result; engine_core.py does."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from ..runner.batch_arrays import RunnerLimits, StepToken
from .block_manager import BlockManager
from .request import Request


@dataclass(frozen=True)
class StepBatch:
    """The tokens of one step. `token_counts` says how many each request has.

    The first `num_scored` tokens are of prompts with log probabilities; `scored_counts` says how
    many each request has, and their sampled tokens are dropped. The next tokens are the last ones
    of the `sampled` requests, each of which gets a token. The first `num_logits` rows of logits are
    fetched. `computed` has, for each request, its number of tokens in the cache after the step and
    its admission id."""

    token_counts: list[tuple[Request, int]]
    scored_counts: list[tuple[Request, int]]
    num_scored: int
    sampled: list[Request]
    num_logits: int
    tokens: list[StepToken]
    block_tables: list[list[int]]
    computed: list[tuple[Request, int, int]]


class Scheduler:
    """First come, first served. If blocks run out, the scheduler preempts the youngest request: it
    frees its blocks, waits first in the queue, and its tokens are computed again. The oldest
    request is never preempted, so every request comes to its end."""

    def __init__(
        self, limits: RunnerLimits, max_prefill_tokens: int | None = None,
        max_prefill_items: int | None = None,
    ) -> None:
        """While some request decodes, a step has at most `max_prefill_tokens` tokens of prompts:
        fewer make the steps of the others shorter, and prompts wait longer. `max_prefill_items`
        bounds their work items of attention, so that a step far into a prompt takes no longer."""
        self.limits, self.blocks = limits, BlockManager(limits.pages, limits.page)
        self._max_prefill_tokens = limits.rows if max_prefill_tokens is None else max_prefill_tokens
        self._max_prefill_items = max_prefill_items
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []  # by arrival
        self.num_preemptions = 0
        self._free_slots = list(range(limits.requests - 1, -1, -1))

    def add(self, request: Request) -> None:
        self.waiting.append(request)

    def remove(self, request: Request) -> None:
        """The request is over, and it runs or waits or neither. Its blocks become free."""
        if request in self.running:
            self._release(request)
        elif request in self.waiting:
            self.waiting.remove(request)

    def schedule(self) -> StepBatch | None:
        """The next step; None if no request has a token to compute."""
        self._extend_block_tables()
        budget = _StepBudget(self.limits, self._max_prefill_items)
        counts = list[tuple[Request, int]]()
        unfinished = [(r, r.num_uncomputed_tokens) for r in self.running if r.needs_step]
        for request, left in unfinished:
            if left <= 1:
                budget.take(request, left, counts)
        if counts:
            budget.num_tokens = min(budget.num_tokens, self._max_prefill_tokens)
        for request, left in unfinished:
            if left > 1:
                budget.take(request, left, counts)
        while budget.num_tokens and budget.num_items != 0 and self._admit_next():
            budget.take(self.running[-1], self.running[-1].num_uncomputed_tokens, counts)
        return self._make_batch(counts) if counts else None

    def mark_launched(self, batch: StepBatch) -> None:
        """Counts the tokens of a launched step as computed for the step after it, because launches
        run in order."""
        for request, count in batch.token_counts:
            request.num_computed_tokens += count
        for row, request in enumerate(batch.sampled, batch.num_scored):
            request.num_in_flight_tokens += 1
            request.in_flight_row = row

    def mark_completed(self, batch: StepBatch) -> None:
        """Commits full blocks of requests that were not preempted since. All their tokens before
        the sampled one are known by now."""
        for request, num_computed, admission_id in batch.computed:
            if request.slot >= 0 and request.admission_id == admission_id:
                self.blocks.commit_full_blocks(request.block_table, request.tokens, num_computed)

    def _extend_block_tables(self) -> None:
        """Finds blocks for the tokens of all requests that need a step, the oldest first."""
        for request in [r for r in self.running if r.needs_step]:
            while request.slot >= 0 and not self.blocks.extend(
                    request.block_table, request.num_tokens):
                self._preempt(self.running[-1])

    def _preempt(self, request: Request) -> None:
        self._release(request)
        self.waiting.appendleft(request)
        self.num_preemptions += 1

    def _release(self, request: Request) -> None:
        self.running.remove(request)
        self.blocks.free(request.block_table)
        self._free_slots.append(request.slot)
        request.slot = -1

    def _admit_next(self) -> bool:
        """Admits the first waiting request, if there is a slot and blocks for all its tokens."""
        if not self.waiting or not self._free_slots:
            return False
        request = self.waiting[0]
        request.block_table = self.blocks.allocate(request.cacheable_tokens)
        if not self.blocks.extend(request.block_table, request.num_tokens):
            self.blocks.free(request.block_table)
            return False
        self.waiting.popleft()
        request.slot, request.admission_id = self._free_slots.pop(), request.admission_id + 1
        request.admission_time_s = request.admission_time_s or time.monotonic()
        request.num_computed_tokens = request.block_table.num_committed * self.blocks.block_tokens
        if not request.answer_tokens:
            request.num_cached_tokens = request.num_computed_tokens
        self.running.append(request)
        return True

    def _make_batch(self, counts: list[tuple[Request, int]]) -> StepBatch:
        complete = [r for r, count in counts if count == r.num_uncomputed_tokens]
        sampled = sorted(complete, key=lambda r: not r.wants_logits)
        tokens = {r: r.make_step_tokens(count) for r, count in counts}
        last_tokens = [tokens[r].pop() for r in sampled]
        scored_counts, scored_tokens = list[tuple[Request, int]](), list[StepToken]()
        for request, _ in counts:
            skipped = request.num_tokens_without_logits
            if request.prompt_logprobs is not None and len(tokens[request]) > skipped:
                scored = tokens[request][skipped:]
                scored_counts.append((request, len(scored)))
                scored_tokens += scored
                del tokens[request][skipped:]
        block_tables: list[list[int]] = [[] for _ in range(self.limits.requests)]
        for request in self.running:
            block_tables[request.slot] = request.block_table.blocks
        others = [t for r, _ in counts for t in tokens[r]]
        computed = [(r, r.num_computed_tokens + count, r.admission_id) for r, count in counts]
        num_logits = len(scored_tokens) + sum(r.wants_logits for r in complete)
        return StepBatch(counts, scored_counts, len(scored_tokens), sampled, num_logits,
                         scored_tokens + last_tokens + others, block_tables, computed)


class _StepBudget:
    """What a step still has room for: tokens, rows of logits, and work items of attention for
    prompts (None: no bound)."""

    def __init__(self, limits: RunnerLimits, max_items: int | None) -> None:
        self.num_tokens, self.num_logits, self.num_items = limits.rows, limits.chosen, max_items
        self._split_tokens = limits.split_tokens

    def take(self, request: Request, left: int, counts: list[tuple[Request, int]]) -> None:
        """Takes as many of the request's `left` uncomputed tokens as there is room for."""
        skipped = left - 1
        if request.prompt_logprobs is not None:
            skipped = request.num_tokens_without_logits
        most = min(left, self.num_tokens, skipped + self.num_logits)
        count = most if left <= 1 else self._take_items(request.num_computed_tokens, most)
        if count:
            counts.append((request, count))
            self.num_tokens -= count
            self.num_logits -= max(0, count - skipped)

    def _take_items(self, position: int, count: int) -> int:
        """As many of `count` tokens from a position on as there are work items for. The first
        prompt gets one at least. Counts above 8 are multiples of 8, because each number of tokens
        needs its own bound launch."""
        if not self.num_items or not count:
            return count if self.num_items is None else 0
        items_of_token = (position + count - 1) // self._split_tokens + 1
        if items_of_token * count > self.num_items:
            most = max(self.num_items // items_of_token, 1)
            count = most - most % 8 if most > 8 else most
        self.num_items = max(0, self.num_items - items_of_token * count)
        return count
