"""The engine on the GPU: answers that depend on nothing else, many of them at a time, and the same
from an artifact."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from eventtensor import LLM, SamplingParams
from eventtensor.llm.runner.runner_memory import DeviceMemory
from tests.engine.batch_invariance import (
    DRAWN,
    F32_CACHE_GB,
    GREEDY,
    check_company,
    prompts,
    tokens_of,
)

pytestmark = pytest.mark.limit(240)  # of which a compilation may take a minute

SIZES = {"target": "cuda", "max_model_len": 400, "max_num_seqs": 6, "cache_gb": F32_CACHE_GB / 2}


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM("random:tiny-llama", batch_invariant=True, **SIZES) as made:
        yield made


def test_answers_do_not_depend_on_company_preemption_or_reuse(llm: LLM) -> None:
    check_company(llm)


def test_64_requests_at_a_time_get_what_each_gets_alone(llm: LLM) -> None:
    asked = prompts(1, [1 + 3 * k for k in range(64)])
    alone = tokens_of([llm.generate(p, DRAWN)[0] for p in asked])
    with LLM("random:tiny-llama", batch_invariant=True, target="cuda", max_model_len=400) as many:
        assert tokens_of(many.generate(asked, DRAWN)) == alone


def test_the_host_and_the_kernel_take_the_same_greedy_tokens(llm: LLM) -> None:
    asked = prompts(2, (9, 150))
    host = llm.generate(asked, SamplingParams(temperature=0, max_tokens=30, logprobs=1))
    assert tokens_of(host) == tokens_of(llm.generate(asked, GREEDY))


def test_prompts_are_scored_in_company_as_alone_and_as_answers_are(llm: LLM) -> None:
    asked = prompts(5, (9, 150, 260))
    only, both = (SamplingParams(temperature=0, max_tokens=n, logprobs=3, prompt_logprobs=3,
                                 ignore_eos=True) for n in (0, 12))
    alone = [list(llm.generate(p, only)[0].prompt_logprobs) for p in asked]
    found = llm.generate(asked, both)
    assert [list(c.prompt_logprobs) for c in found] == alone
    for prompt, c in zip(asked, found, strict=True):
        again = llm.generate([[*prompt, *(t.token for t in c.tokens)]], only)[0]
        assert list(again.prompt_logprobs)[len(prompt) :] == list(c.tokens)


def test_an_artifact_answers_as_the_compiled_model_does(llm: LLM, tmp_path: Path) -> None:
    pytest.importorskip("rich")
    compile_model = importlib.import_module("eventtensor.llm.cli.compile_command").compile_model
    compile_model("random:tiny-llama", tmp_path, "cuda", "bf16", batch_invariant=True)
    asked = prompts(3, (5, 200))
    with LLM("random:tiny-llama", batch_invariant=True, artifact=tmp_path, **SIZES) as loaded:
        assert tokens_of(loaded.generate(asked, DRAWN)) == tokens_of(llm.generate(asked, DRAWN))


def test_dependent_launches_give_the_same_tokens_and_leave_no_gap_for_others() -> None:
    """The same kernels by plain launches. Stamps of launches are in order, none inside another."""
    asked = prompts(4, (7, 40, 130))
    with LLM("random:tiny-llama", **SIZES) as fast:
        memory = fast.engine.runner.memory
        assert isinstance(memory, DeviceMemory) and memory.dependent
        found = [tokens_of(fast.generate(p, DRAWN)) for p in (asked, asked[:1])]
        for rows in (1, 2):
            stamps = fast.engine.runner.ready(rows).backend.stamps()
            assert len(stamps) > 10
            assert all(a.began < a.ended <= b.began for a, b in pairwise(stamps))
        memory.dependent = False
        assert [tokens_of(fast.generate(p, DRAWN)) for p in (asked, asked[:1])] == found
        assert not fast.engine.runner.ready(1).backend.refused


def test_lone_requests_may_have_the_faster_kernel() -> None:
    with LLM("random:tiny-llama", **SIZES) as fast:
        params = SamplingParams(temperature=0, max_tokens=30, ignore_eos=True)
        (answer,) = fast.generate([[5, 6, 7]], params)
        assert len(answer.tokens) == 30 and fast.engine.num_open_requests == 0
