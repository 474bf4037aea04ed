"""A claim about an engine on any target: what a request gives depends on nothing but itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eventtensor import LLM, SamplingParams
from eventtensor.llm.engine.llm import Completion

# Blocks of the tiny model have 128 tokens: 8 of them, in f32, are two contexts of 400.
F32_CACHE_GB = 1 / 1024
DRAWN = SamplingParams(temperature=1.2, top_k=80, top_p=0.9, seed=7, max_tokens=30,
                       ignore_eos=True)
PENALISED = SamplingParams(temperature=0.9, min_p=0.02, repetition_penalty=1.3, seed=8,
                           presence_penalty=0.5, frequency_penalty=0.3, max_tokens=30,
                           ignore_eos=True)
GREEDY = SamplingParams(temperature=0, max_tokens=30, ignore_eos=True)


def prompts(seed: int, lengths: Sequence[int]) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(3, 256, n).tolist() for n in lengths]


def tokens_of(completions: Sequence[Completion]) -> list[list[int]]:
    return [[t.token for t in c.tokens] for c in completions]


def check_company(llm: LLM) -> None:
    """Alone first; then all at once in few pages, from either end; then one twice, whose begin is
    known."""
    asked = prompts(0, (5, 140, 260, 100, 300, 33, 130, 7, 250, 101, 102, 103, 104, 105, 106, 107))
    params = [(GREEDY, DRAWN, PENALISED)[k % 3] for k in range(len(asked))]
    alone = [llm.generate(p, s)[0] for p, s in zip(asked, params, strict=True)]
    stats = llm.engine.stats
    before, reused = stats.num_preemptions, stats.cached_tokens
    for order in (1, -1):
        found = llm.generate(asked[::order], params[::order])[::order]
        assert tokens_of(found) == tokens_of(alone)
    longest = max(range(len(asked)), key=lambda k: len(asked[k]))
    for _ in range(2):
        assert tokens_of(llm.generate(asked[longest], params[longest])) \
            == tokens_of(alone[longest : longest + 1])
    assert stats.num_preemptions > before and stats.cached_tokens > reused
    assert len({tuple(t) for t in tokens_of(alone)}) == len(alone)
    assert llm.engine.scheduler.blocks.num_used_blocks == 0
