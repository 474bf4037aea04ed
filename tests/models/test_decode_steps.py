"""The hand-made steps of benchmarks/decoder.py equal those of a tiny model on threads: chunks of a
prompt give the same logits, and drawn tokens are legal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

import eventtensor as et
from benchmarks.decoder import TOP_P, Asked, Cache, Model, Steps, floor_bytes, wrong
from eventtensor.llm.model.attention_block import page_tokens
from eventtensor.llm.model.decoder_tasks import Weights
from eventtensor.llm.model.llama import llama
from eventtensor.llm.model.model_presets import PRESETS
from eventtensor.runtime.cuda import cuda_kernel
from tests.support.emulated import _no_cubin
from tests.support.fake_driver import FakeDriver, installed

CONFIG, ROWS = PRESETS["tiny-qwen3"], 16


def compiled(sampling: bool) -> et.Kernel:
    program = llama(CONFIG, Weights("cpu", et.f32), tokens=ROWS, sampling=sampling)
    return et.compile(program, target="cpu", workers=2)


@pytest.fixture(scope="module")
def kernel() -> Iterator[et.Kernel]:
    with closing(compiled(sampling=False)) as made:
        yield made


@pytest.fixture(scope="module")
def model() -> Model:
    torch.manual_seed(1)
    return Model(CONFIG, "cpu", "float32", "cpu")


def prompt_logits(kernel: et.Kernel, model: Model, chunk: int) -> list[Any]:
    """After the prompt and after one more token. The cache begins with other random values each
    time, which nobody may read."""
    length = 150  # more than one split of attention
    cache = Cache(model, 1, length + 1)
    steps = cache.prompt(length, chunk)
    steps.append(cache.after(steps[-1], length))
    for arguments in steps:
        kernel(**arguments)
    assert not wrong(lambda: kernel(**steps[-1]), steps[-1], runs=2)
    return [steps[k]["logits"].clone() for k in (-2, -1)]


def test_a_prompt_has_the_same_logits_by_any_chunks(kernel: et.Kernel, model: Model) -> None:
    wanted = prompt_logits(kernel, model, 16)
    for chunk in (1, 7):
        assert all(map(torch.equal, prompt_logits(kernel, model, chunk), wanted)), chunk


def test_requests_have_pages_of_their_own(kernel: et.Kernel, model: Model) -> None:
    """Each gives alone what it gives among others."""
    cache = Cache(model, 3, 140)
    together = cache.decode()
    kernel(**together)
    for r in range(3):
        alone = cache.step([Asked(r, 139, 17 + r)], 1)
        kernel(**alone)
        assert torch.equal(alone["logits"][0], together["logits"][r])
    assert len({tuple(row.tolist()) for row in together["logits"]}) == 3


def test_a_row_is_written_where_its_table_says(model: Model) -> None:
    page, cache = page_tokens(CONFIG), Cache(model, 3, 300)
    for r, slot in enumerate(cache.decode()["slot"].tolist()):
        pages = cache.arrays["table"][r].flatten().tolist()
        assert slot == pages[299 // page] * page + 299 % page


def test_drawn_tokens_are_legal_and_illegal_ones_are_seen(model: Model) -> None:
    with closing(compiled(sampling=True)) as kernel:
        arguments = Cache(model, 5, 20).decode(sampled=True)
        arguments["temperature"].fill_(0.8)
        assert not wrong(lambda: kernel(**arguments), arguments, runs=2)
    last = {**arguments, "chosen": arguments["logits"].argmin(dim=1)}
    assert "top_p" in wrong(lambda: None, last, runs=1)
    greedy = {k: v for k, v in last.items() if k != "sampled"}
    assert "largest" in wrong(lambda: None, greedy, runs=1)
    assert TOP_P < 1


class OnDevice:
    """A tensor that says of itself that it is on a GPU."""

    is_cuda = True

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tensor, name)


def test_steps_of_an_artifact_are_bound_and_take_a_workspace(tmp_path: Path) -> None:
    """On a driver whose launches do nothing."""
    driver, model = FakeDriver(devices=1), Model(CONFIG, "cuda", "bfloat16", "cpu")
    program = llama(CONFIG, Weights("cuda", et.bf16), tokens=ROWS, sampling=True)
    with installed(lambda: driver), patch.object(cuda_kernel, "build_cubin", _no_cubin):
        with closing(et.compile(program, target="cuda")) as kernel:
            kernel.save(tmp_path)
            image = kernel.backend.image
        driver.rank, driver.words = image.rank, len(image.interface.dims + image.interface.tensors)
        sizes = []
        for requests in (1, 5):
            arguments = Cache(model, requests, 20).decode(sampled=True)
            there = {k: v if isinstance(v, int) else OnDevice(v) for k, v in arguments.items()}
            with closing(Steps(et.load(tmp_path), [there])) as steps:
                sizes.append(steps.workspace_bytes())
    # The residual of every layer, at least.
    assert sizes[0] >= 4 * CONFIG.hidden * (2 * CONFIG.layers + 1) and sizes[1] > sizes[0]


def test_what_is_not_repeated_or_not_finite_is_seen() -> None:
    last = {"logits": torch.zeros(1, 4), "chosen": torch.tensor([0])}

    def drift() -> None:
        last["logits"] += 1

    assert "repeated" in wrong(drift, last, runs=2)
    last["logits"][0, 2] = float("inf")
    assert "finite" in wrong(lambda: None, last, runs=1)


def test_the_floor_counts_every_matrix_and_the_cache_once() -> None:
    c = PRESETS["llama-3.2-1b"]
    each = 2 * c.hidden * c.hidden + 2 * c.hidden * c.kv_heads * c.head_dim
    weights = c.layers * (each + 3 * c.hidden * c.intermediate) + c.vocab * c.hidden
    assert floor_bytes(c, 0, 0) == 2 * weights
    token = 2 * c.layers * 2 * c.kv_heads * c.head_dim
    assert floor_bytes(c, 16, 1023) == 2 * weights + 16 * 1024 * token
