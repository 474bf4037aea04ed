"""The sampler in the interpreter, as C++ and as emulated CUDA: tokens equal those of the NumPy
definition, whatever else is in the batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from shutil import which

import numpy as np
import pytest

import eventtensor as et
from eventtensor.codegen.cuda import generate
from eventtensor.compiler import run_passes
from eventtensor.config import Options, environment
from eventtensor.ir.plan import HandoffKind
from eventtensor.llm.model.decoder_tasks import Weights
from eventtensor.llm.model.llama import llama
from eventtensor.llm.model.model_presets import PRESETS
from eventtensor.llm.model.sampler import TILE
from eventtensor.llm.runner.batch_arrays import LogitsChange, TokenChoice
from eventtensor.runtime.cuda.cuda_build import build_cubin
from eventtensor.targets.h200 import H200
from tests.engine.reference import changed
from tests.models.sampling_reference import (
    Choose,
    Wish,
    check_case,
    choice,
    chooser,
    kept,
    launch_arrays,
    random_case,
    random_change,
    steps_of,
)
from tests.support.emulated import emulated_kernel

VOCAB, PART = 1200, 512  # the last part is not whole


@pytest.fixture(scope="module")
def on_cpu() -> Iterator[Choose]:
    with closing(et.compile(choice(VOCAB, PART), target="cpu", workers=2)) as kernel:
        yield chooser(kernel)


def test_tokens_are_those_of_the_definition(on_cpu: Choose) -> None:
    rng, asked, all_rows = np.random.default_rng(1), 0, 0
    for _ in range(150):
        logits, wishes = random_case(rng, 5, VOCAB)
        asked += check_case(logits, wishes, on_cpu(logits, wishes))
        all_rows += len(wishes)
    assert asked > 0.9 * all_rows


def test_every_kept_token_is_drawn_and_no_other(on_cpu: Choose) -> None:
    rng = np.random.default_rng(2)
    logits = rng.standard_normal((1, VOCAB)).astype(np.float32)
    for w in (Wish(0, 0.5, 7), Wish(0, 1.0, 0, 0.01), Wish(0, 2.0, 9, 0.7), Wish(0, 1.0, 1, 0.0)):
        found = {int(on_cpu(logits, [replace(w, uniform=float(u))])[0])
                 for u in np.linspace(0, 1, 400, endpoint=False, dtype=np.float32)}
        assert found == {int(t) for t in kept(logits[0], w)}, w


@pytest.mark.parametrize("top_k", (1, 5, 600, 601))
def test_ties_at_the_border_go_to_the_lowest_tokens(on_cpu: Choose, top_k: int) -> None:
    logits = np.zeros((1, VOCAB), np.float32)
    logits[0, 2] = 1.0
    order = [2, 0, 1, *range(3, VOCAB)][:top_k]
    low, high = (on_cpu(logits, [Wish(0, 1.0, top_k, 1.0, u)])[0] for u in (0.0, 0.9999999))
    assert (low, high) == (min(order), max(order))


def test_as_many_equals_as_top_p_needs_are_kept(on_cpu: Choose) -> None:
    logits = np.zeros((1, VOCAB), np.float32)
    for share in (0.1004, 0.5004, 0.9996):  # of 1200 equals: 121, 601, 1200
        last = on_cpu(logits, [Wish(0, 1.0, 0, share, 0.9999999)])[0]
        assert last == np.ceil(VOCAB * share) - 1


def test_top_p_counts_from_the_mass_that_top_k_leaves(on_cpu: Choose) -> None:
    logits = np.full((1, VOCAB), -5.0, np.float32)
    logits[0, [3, 700, 701, 900]] = np.log([4.0, 3.0, 2.0, 1.0])
    # Of 4 + 3 + 2 the first two are 7/9; of the whole row they are less than 0.5.
    found = {int(on_cpu(logits, [Wish(0, 1.0, 3, 0.75, float(u))])[0]) for u in np.arange(20) / 20}
    assert found == {3, 700}


def test_rows_without_a_wish_or_a_temperature_are_greedy(on_cpu: Choose) -> None:
    logits = np.random.default_rng(3).standard_normal((4, VOCAB)).astype(np.float32)
    logits[1, [17, 800]] = 9.0  # the lowest of equals
    best = logits.argmax(1)
    np.testing.assert_array_equal(on_cpu(logits, []), best)
    cold = [Wish(r, 0.0, 50, 0.9, 0.99) for r in (0, 1)]
    np.testing.assert_array_equal(on_cpu(logits, cold), best)


@pytest.mark.parametrize("bad", (np.nan, np.inf))
@pytest.mark.parametrize("everywhere", (False, True))
def test_logits_that_are_no_numbers_give_some_token_and_harm_no_other_row(
    on_cpu: Choose, bad: float, everywhere: bool
) -> None:
    logits = np.random.default_rng(4).standard_normal((3, VOCAB)).astype(np.float32)
    wishes = [Wish(r, 1.0, 20, 0.9, 0.3) for r in range(3)]
    right = on_cpu(logits, wishes)
    logits[1, slice(None) if everywhere else 700] = bad
    got = on_cpu(logits, wishes)
    assert 0 <= got[1] < VOCAB and got[1] == on_cpu(logits, [])[1]
    assert (got[0], got[2]) == (right[0], right[2])


@pytest.mark.parametrize("first", (5, 850))  # with other parts before it, and without
def test_masked_tokens_are_never_drawn(on_cpu: Choose, first: int) -> None:
    logits = np.full((1, VOCAB), -np.inf, np.float32)
    logits[0, [first, 1199]] = 0.0
    found = [int(on_cpu(logits, [Wish(0, 1.0, uniform=u)])[0]) for u in (0.0, 0.49, 0.51, 0.999)]
    assert found == [first, first, 1199, 1199]


def test_min_p_keeps_what_is_likely_enough_beside_the_likeliest(on_cpu: Choose) -> None:
    logits = np.full((1, VOCAB), -5.0, np.float32)
    logits[0, [3, 700, 701, 900]] = np.log([4.0, 3.0, 2.0, 1.0])
    for w, wanted in ((Wish(0, min_p=0.6), {3, 700}), (Wish(0, min_p=0.4), {3, 700, 701}),
                      (Wish(0, top_k=2, min_p=0.4), {3, 700}),
                      # Of 4 + 3 + 2 the first two are 7/9.
                      (Wish(0, top_p=0.75, min_p=0.4), {3, 700}), (Wish(0, min_p=1.0), {3})):
        found = {int(on_cpu(logits, [replace(w, uniform=k / 40)])[0]) for k in range(40)}
        assert found == wanted, w


def test_changes_of_logits_are_those_of_the_definition(on_cpu: Choose) -> None:
    """The logits themselves; rows that are not changed stay as they are."""
    rng = np.random.default_rng(11)
    logits = (3 * rng.standard_normal((4, VOCAB))).astype(np.float32)
    wishes = [Wish(r, 0.0, change=random_change(rng, VOCAB)) for r in (3, 0, 2)]
    a = launch_arrays(logits, wishes)
    with closing(et.compile(choice(VOCAB, PART), target="cpu")) as kernel:  # from the cache
        kernel(**a, Q=0)
    np.testing.assert_array_equal(a["logits"][:4], logits)
    for k, w in enumerate(wishes):
        wanted = changed(logits[w.row], TokenChoice(change=w.change))
        never = np.isinf(wanted)
        assert (a["logits"][4 + k][never] < -1e38).all()
        np.testing.assert_allclose(a["logits"][4 + k][~never], wanted[~never], rtol=1e-6, atol=1e-6)
        assert a["chosen"][w.row] == wanted.argmax()


def test_what_is_added_to_a_token_is_added_before_it_is_penalised(on_cpu: Choose) -> None:
    """Tokens at the ends of tiles, and of the row."""
    logits = np.zeros((1, VOCAB), np.float32)
    for token in (0, 15, 16, 1023, 1024, VOCAB - 1):
        none = LogitsChange(np.zeros(0, np.int32), 0, bias={token: 1.5, token ^ 1: -100.0})
        assert on_cpu(logits, [Wish(0, 0.0, change=none)])[0] == token
        seen = replace(none, history=np.array([token]), repetition=2.0)
        a = launch_arrays(logits, [Wish(0, 0.0, change=seen)])
        with closing(et.compile(choice(VOCAB, PART), target="cpu")) as kernel:  # from the cache
            kernel(**a, Q=0)
        assert a["logits"][1, [token, token ^ 1]].tolist() == [0.75, -100.0]
        assert np.count_nonzero(a["logits"][1]) == 2 and not a["logits"][0].any()


@pytest.mark.parametrize("temperature", (0.0, 1.0))
def test_tokens_that_may_not_come_are_never_chosen(on_cpu: Choose, temperature: float) -> None:
    logits = np.zeros((2, VOCAB), np.float32)
    for token in (0, 7, 8, 511, 512, 1023, 1024, 1199):
        bits = np.zeros(VOCAB, bool)
        bits[token] = True
        mask = LogitsChange(np.zeros(0, np.int32), 0, allowed=np.packbits(bits, bitorder="little"))
        logits[:] = 0.0
        logits[:, token] = -9.0
        found = on_cpu(logits, [Wish(1, temperature, uniform=0.7, change=mask)])
        assert found[1] == token and found[0] == (1 if token == 0 else 0)


def test_a_top_p_just_below_1_keeps_no_more_than_top_k(on_cpu: Choose) -> None:
    """Where sums are rounded, the mass that it asks for may seem not to be there."""
    rng, almost = np.random.default_rng(9), float(np.nextafter(np.float32(1), np.float32(0)))
    for _ in range(100):
        logits = rng.standard_normal((8, VOCAB)).astype(np.float32)
        wishes = [Wish(r, 1.0, int(k), almost, 0.9999999)
                  for r, k in enumerate(rng.integers(2, 900, 8))]
        for w, token in zip(wishes, on_cpu(logits, wishes), strict=True):
            assert token in kept(logits[w.row], replace(w, top_p=1.0)), w


def test_a_token_does_not_depend_on_the_rest_of_the_batch(on_cpu: Choose) -> None:
    logits, wishes = random_case(np.random.default_rng(5), 12, VOCAB)
    together = on_cpu(logits, wishes)
    for w in wishes:
        alone = on_cpu(logits[w.row : w.row + 1], [replace(w, row=0)])
        assert alone[0] == together[w.row], w


def test_a_search_with_too_few_steps_says_so(on_cpu: Choose) -> None:
    logits = np.random.default_rng(6).standard_normal((1, VOCAB)).astype(np.float32)
    one, both = Wish(0, 1.0, 5), Wish(0, 1.0, 5, 0.5)
    assert (one.steps, both.steps) == (2, 5)
    a = launch_arrays(logits, [both])
    with closing(et.compile(choice(VOCAB, PART), target="cpu")) as kernel:  # from the cache
        kernel(**a, Q=one.steps)
    assert a["chosen"][0] == -1


def test_a_large_vocabulary_is_searched_in_many_parts() -> None:
    vocab, rng, asked = 151936, np.random.default_rng(8), 0
    with closing(et.compile(choice(vocab, TILE), target="cpu", workers=2)) as kernel:
        for _ in range(4):
            logits, wishes = random_case(rng, 3, vocab)
            asked += check_case(logits, wishes, chooser(kernel)(logits, wishes))
    assert asked >= 4


def test_interpreter_and_emulated_cuda_draw_the_same_tokens(on_cpu: Choose) -> None:
    rng = np.random.default_rng(7)
    cases = [random_case(rng, 3, VOCAB) for _ in range(3)]
    state = run_passes(choice(VOCAB, PART), Options(target="cuda"))
    assert state.plan is not None and state.report is not None and state.report.ok
    with (closing(et.compile(choice(VOCAB, PART), target="interp")) as interp,
          emulated_kernel(state.plan, 3) as cuda):
        for logits, wishes in cases:
            wanted = on_cpu(logits, wishes)
            check_case(logits, wishes, wanted)
            np.testing.assert_array_equal(chooser(interp)(logits, wishes), wanted)
            a = launch_arrays(logits, wishes)
            sizes = {"N": len(a["sampled"]), "A": len(a["adjusted"]), "H": a["history"].shape[1],
                     "B": a["biased"].shape[1]}
            cuda.launch({"S": 3, "Q": steps_of(wishes), **sizes}, a)
            np.testing.assert_array_equal(a["chosen"], wanted)


@pytest.mark.skipif(which("nvcc") is None, reason="nvcc is not on PATH")
def test_the_kernel_needs_no_local_memory() -> None:
    plan = run_passes(choice(128256, TILE), Options(target="cuda")).plan
    assert plan is not None
    text = generate(plan).text
    assert "__forceinline__ bool run(" in text  # its worker would lie in memory
    usage = build_cubin(text, "choice", "sm_90a", environment()).usage
    assert usage.spill_bytes == usage.stack_bytes == 0


@pytest.mark.skipif(which("nvcc") is None, reason="nvcc is not on PATH")
def test_a_model_that_samples_leaves_room_for_what_its_kernel_declares() -> None:
    """All of shared memory is shared out before the compiler says how much the kernel declares."""
    program = llama(PRESETS["llama-3.2-1b"], Weights("cuda", et.bf16), sampling=True)
    plan = run_passes(program, Options(target="cuda")).plan
    assert plan is not None
    made = generate(plan)
    usage = build_cubin(made.text, "samples", "sm_90a", environment()).usage
    assert made.shared_bytes + usage.shared_bytes <= H200.shared_bytes
    assert usage.spill_bytes == 0


def test_the_way_to_a_greedy_token_stays_a_flag() -> None:
    """Drawing has an event of its own."""
    plan = run_passes(choice(VOCAB, PART), Options(target="cuda")).plan
    assert plan is not None
    found = {h.call: h.kind for h in plan.handoffs}
    assert found["choose"] is HandoffKind.tagged
