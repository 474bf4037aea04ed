"""Claims about a compiled step, for a runner of any target."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eventtensor.llm.runner.runner import Runner, StepToken, TokenChoice
from tests.models.sampling_reference import Wish, check_case, random_change
from tests.models.tiny_models import (
    Chunk,
    Pair,
    Session,
    mixed_steps,
    random_requests,
    relative,
)

# Around the ends of pages (64 to 256 tokens) and of splits (128, 256).
LENGTHS = (600, 257, 129, 64, 17, 1)
STEPS = 64


def check_logits(pair: Pair, runner: Runner, limit: float) -> None:
    """Prompts of many lengths in mixed steps, beside transformers, which sees each as a whole."""
    requests = random_requests(LENGTHS, runner.config.vocab)
    wanted = [pair.logits(ids) for ids in requests]
    session, sizes = Session(runner, requests), set()
    for chunks in mixed_steps(LENGTHS):
        sizes.add(sum(count for _, count in chunks))
        tokens, logits = session.step(chunks)
        for r, got in logits.items():
            where = f"{pair.dtype}, request {r}, {session.done[r]} tokens, step {chunks}"
            assert relative(got, wanted[r][session.done[r] - 1]) <= limit, where
            assert tokens[r] == got.argmax(), where
    assert sizes >= {*range(1, 18)} and session.done == list(LENGTHS)


def check_greedy(pair: Pair, runner: Runner) -> None:
    """Three requests decode together after their prompts; the first crosses the end of a page."""
    requests = random_requests((100, 9, 1), runner.config.vocab, seed=1)
    wanted = [pair.greedy(ids, STEPS) for ids in requests]
    session = Session(runner, [list(ids) for ids in requests])
    chunks: list[Chunk] = [(r, len(ids)) for r, ids in enumerate(requests)]
    for k in range(STEPS):
        tokens, _ = session.step(chunks)
        for r, token in tokens.items():
            assert token == wanted[r][k], f"request {r}, token {k}"
            session.requests[r].append(token)
        chunks = [(r, 1) for r in range(len(requests))]


def check_bits_of_cuts_and_company(runner: Runner, length: int = 200, piece: int = 1) -> None:
    """The logits after a token of a request are the same bits, alone and in small pieces, in large
    ones, and cut otherwise beside others."""
    requests = random_requests((length, 90, 33), runner.config.vocab, seed=2)
    ends = [at for at in (1, 5, 64, 65, 128, 129, length) if at <= length]

    def logits_at_ends(company: bool, cuts: Sequence[int], seed: int) -> list[bytes]:
        session, found = Session(runner, requests, seed), {}
        for at in sorted({*cuts, *ends}):
            chunks = [(0, at - session.done[0])]
            if company:
                chunks += [(r, 1 + session.done[r] % 4) for r in (2, 1)
                           if session.done[r] + 4 < len(requests[r])]
            found[at] = session.step(chunks)[1][0].tobytes()
        return [found[at] for at in ends]

    alone = logits_at_ends(False, range(piece, length, piece), 0)
    assert alone == logits_at_ends(False, (), 1), "cut otherwise"
    assert alone == logits_at_ends(True, (3, 60), 2), "beside others"


def check_logits_of_every_row(runner: Runner, cuts: Sequence[int] = (1, 5, 63, 3, 40)) -> None:
    """A step gives logits for many rows of one request, the same bits as for one row of each step.
    Rows of another request, which get none or one, stand beside them."""
    requests = random_requests((sum(cuts), 30), runner.config.vocab, seed=6)
    single, wanted = Session(runner, requests[:1]), []
    for _ in requests[0]:
        wanted.append(single.step([(0, 1)])[1][0].tobytes())
    page, at, found = runner.page, 0, list[bytes]()
    first = -(-len(requests[0]) // page)
    tables = [[*range(first)], [first, first + 1]]
    for k, count in enumerate(cuts):
        rows = [StepToken(0, requests[0][i], i) for i in range(at, at + count)]
        beside = [StepToken(1, requests[1][i], i) for i in range(3 * k, 3 * k + 3)]
        both = [*rows, beside[2], *beside[:2]]
        found += [x.tobytes() for x in runner.step(both, tables, count + k % 2).logits[:count]]
        at += count
    assert found == wanted


def check_error_of_bf16(
    pair: Pair, runner: Runner, lengths: tuple[int, int] = (300, 40), factor: float = 1.5
) -> None:
    """Against float32 with the same weights, over many positions of two prompts."""
    requests = random_requests(lengths, runner.config.vocab, seed=3)
    exact = [pair.logits(ids) for ids in requests]
    torch_bf16 = [pair.logits(ids, half=True) for ids in requests]
    session, ours, theirs, right = Session(runner, requests), [], [], []
    for chunks in mixed_steps(lengths, seed=1):
        for r, got in session.step(chunks)[1].items():
            at = session.done[r] - 1
            ours.append(got)
            theirs.append(torch_bf16[r][at])
            right.append(exact[r][at])
    mine, other = (relative(np.array(x), np.array(right)) for x in (ours, theirs))
    assert 0 < mine <= factor * other, f"{mine} beside {other} of torch"


def check_sampled(runner: Runner) -> None:
    """Tokens of a step are drawn from the logits that it gives, changed or not; rows without a wish
    are greedy."""
    requests = random_requests((40, 7, 130, 2), runner.config.vocab, seed=4)
    session, asked = Session(runner, requests), 0
    rng = np.random.default_rng(5)
    first, second, third = (random_change(rng, runner.config.vocab) for _ in range(3))
    for chunks, wishes in (
        ([(0, 10), (1, 6), (2, 100), (3, 1)], []),
        ([(0, 1), (1, 1), (2, 10), (3, 1)], [Wish(2, 0.8, 0, 0.9, 0.7), Wish(0, 1.5, 9, 1.0, 0.2)]),
        ([(0, 20), (2, 1)], [Wish(1, 1.0, 50, 0.5, 0.9, 0.2), Wish(0, 0.0, change=first)]),
        ([(2, 18), (0, 8)], [Wish(0, 0.7, 0, 1.0, 0.1), Wish(1, 2.0, 5, 0.9, 0.6)]),
        ([(2, 1), (0, 1)], [Wish(1, 1.0, 0, 0.9, 0.4, 0.01, second), Wish(0, 0.0, change=third)]),
    ):
        own = {w.row: w.choice for w in wishes}
        choices = [own.get(r, TokenChoice()) for r in range(len(chunks))]
        tokens, logits = session.step(chunks, choices)
        asked += check_case(np.array([*logits.values()]), wishes, np.array([*tokens.values()]))
    assert asked >= 4
