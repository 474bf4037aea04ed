"""Tokens of an answer held against the reference, by logits that are computed anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import numpy as np

from eventtensor import LLM, SamplingParams
from eventtensor.llm.runner.batch_arrays import LogitsChange, StepToken, TokenChoice, chance
from eventtensor.llm.runner.runner import Runner
from tests.engine.reference import changed
from tests.models.sampling_reference import Wish, decided, drawn

ROWS = 128


def logits_of(llm: LLM, tokens: Sequence[int], first: int) -> Iterator[np.ndarray]:
    """After each token from number `first` on, by the kernel of the engine."""
    limits = llm.engine.runner.limits
    with closing(Runner(llm.model.config, llm._weights.arrays, target=llm.target, dtype="f32",
                        pages=limits.pages, positions=limits.positions, requests=1,
                        sampling=True)) as runner:
        table = [list(range(-(-len(tokens) // limits.page)))]
        for at in range(0, first, ROWS):
            rows = [StepToken(0, tokens[k], k) for k in range(at, min(first, at + ROWS))]
            runner.step(rows, table, 1, logits=0)
        for k in range(first, len(tokens)):
            yield runner.step([StepToken(0, tokens[k], k)], table, 1).logits[0]


def check_tokens(
    llm: LLM, prompt: Sequence[int], answer: Sequence[int], params: SamplingParams
) -> int:
    """How many of them float noise does not decide: those must be the reference's."""
    p, grammar, count = params, llm.engine.grammars.compile(params), 0
    tokens = [*prompt, *answer]
    rows = logits_of(llm, tokens[:-1], len(prompt) - 1)
    for k, logits in enumerate(rows, len(prompt)):
        change = LogitsChange(np.array(tokens[:k]), len(prompt), p.repetition_penalty,
                        p.presence_penalty, p.frequency_penalty,
                        None if grammar is None else grammar.allowed(), p.logit_bias or {})
        new = changed(logits, TokenChoice(change=change))
        wish = Wish(0, p.temperature, p.top_k, p.top_p, chance(p.seed or 0, k - 1), p.min_p)
        if decided(new, wish):
            assert drawn(new, wish) == tokens[k], (params, k)
            count += 1
        if grammar is not None:
            grammar.accept(tokens[k])
    return count
