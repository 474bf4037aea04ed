"""How much fits: the context of the model as far as memory goes, and never more than there is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventtensor.errors import BadOption, EventTensorError, OutOfMemory
from eventtensor.llm.engine.capacity import GB, Capacity, CapacityOptions, compute_capacity
from eventtensor.llm.model.model_presets import PRESETS
from eventtensor.llm.runner.free_memory import FreeMemory, free_memory, host_memory
from tests.support.fake_driver import FakeDriver, installed

H200 = FreeMemory(139 * GB, 140 * GB)
LAPTOP = FreeMemory(6 * GB, 8 * GB)


def fits(
    name: str, memory: FreeMemory, layout: str = "cuda", item: int = 2, **asked: float
) -> Capacity:
    return compute_capacity(PRESETS[name], layout, item, CapacityOptions(**asked), memory)


@pytest.mark.parametrize(
    ("name", "layout", "memory", "context", "gb", "requests"),
    [
        # 23 KB a token: all contexts of 8192 tokens need 12 GB.
        ("smollm2-135m", "cuda", H200, 8192, 11.25, 64),
        ("smollm2-135m", "cpu", LAPTOP, 8192, 1.46, 8),
        # 32 KB a token, so 4 GB a context.
        ("llama-3.2-1b", "cuda", H200, 131072, 120.3, 30),
        ("llama-3.2-1b", "cpu", LAPTOP, 46400, 1.41, 1),
        # 128 KB a token, so 16 GB a context, beside 15 GB of weights.
        ("llama-3.1-8b", "cuda", H200, 131072, 108.8, 6),
        ("llama-3.1-8b", "cuda", FreeMemory(23 * GB, 24 * GB), 32192, 3.93, 1),
    ],
)
def test_the_context_is_the_models_as_far_as_memory_goes(
    name, layout, memory, context, gb, requests
) -> None:
    found = fits(name, memory, layout)
    assert found.max_model_len == pytest.approx(context, rel=0.02)
    assert found.cache_bytes / GB == pytest.approx(gb, rel=0.02)
    assert found.num_full_requests == requests
    assert found.max_model_len <= min(found.cache_tokens, found.num_positions)


def test_a_share_of_the_gpu_is_for_weights_and_cache_together() -> None:
    half = fits("llama-3.1-8b", H200, gpu_memory_utilization=0.5)
    assert half.weight_bytes + half.cache_bytes < 0.5 * H200.total
    assert fits("llama-3.1-8b", FreeMemory(40 * GB, 140 * GB)).cache_bytes < 25 * GB


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(("smollm2-135m", "llama-3.2-1b", "qwen3-8b", "qwen3-30b-a3b")),
    st.sampled_from(("cuda", "cpu")),
    st.integers(0, 200 * GB),
    st.integers(0, 200 * GB),
    st.integers(1, 64),
    st.none() | st.integers(2, 1 << 20),
    st.none() | st.floats(0, 300),
    st.floats(0.01, 1),
)
def test_there_is_never_more_than_memory(
    name, layout, one, other, running, context, cache_gb, share
) -> None:
    memory = FreeMemory(min(one, other), max(one, other))
    asked = CapacityOptions(context, running, 128, cache_gb, share)
    try:
        found = compute_capacity(PRESETS[name], layout, 2, asked, memory)
    except EventTensorError as e:
        assert e.hint and ("GB" in e.message or "cache_gb" in e.message)
        return
    weights = found.weight_bytes if layout == "cuda" else 0
    assert found.cache_bytes + weights <= memory.free
    assert 2 <= found.max_model_len <= PRESETS[name].max_position and found.num_full_requests >= 1
    assert found.num_blocks * found.block_tokens >= found.max_model_len
    if context is not None:
        assert found.max_model_len == min(context, PRESETS[name].max_position)


def test_what_does_not_fit_is_told_with_its_numbers() -> None:
    with pytest.raises(
        OutOfMemory,
        match=r"131072 tokens needs 16 GB of cache: the GPU has 23 GB "
        r"free, of which weights take 15 GB, .* room for 31616 tokens",
    ) as told:
        fits("llama-3.1-8b", FreeMemory(23 * GB, 24 * GB), max_model_len=131072)
    assert "or a context of 31616" in told.value.hint
    with pytest.raises(OutOfMemory, match="12 GB free, of which weights take 15 GB"):
        fits("llama-3.1-8b", FreeMemory(12 * GB, 24 * GB))
    with pytest.raises(OutOfMemory, match=r"a cache of 11\.2 GB: this machine has 6 GB"):
        fits("smollm2-135m", LAPTOP, "cpu", cache_gb=100)
    with pytest.raises(BadOption, match=r"cache_gb is 0\.1: room for 4608 tokens") as told:
        fits("smollm2-135m", LAPTOP, "cpu", cache_gb=0.1, max_model_len=8192)
    assert "a context of 8192 tokens needs 0.176, or a context of 4608" in told.value.hint
    with pytest.raises(BadOption, match="gpu_memory_utilization is 0"):
        fits("smollm2-135m", H200, gpu_memory_utilization=0)


def test_a_cache_that_is_asked_for_bounds_the_context() -> None:
    assert fits("smollm2-135m", LAPTOP, "cpu", cache_gb=0.1).max_model_len == 4608
    assert fits("smollm2-135m", LAPTOP, "cpu", cache_gb=1, max_num_seqs=2).max_model_len == 8192


MEMINFO = "MemTotal:       16000000 kB\nMemFree: 10 kB\nMemAvailable:    8000000 kB\nHuge: 0\n"


def test_the_limit_of_a_container_counts(tmp_path: Path) -> None:
    proc, cgroup = tmp_path / "proc", tmp_path / "cgroup"
    proc.mkdir(), cgroup.mkdir()
    (proc / "meminfo").write_text(MEMINFO)
    assert host_memory(proc, cgroup) == (8000000 << 10, 16000000 << 10)
    (cgroup / "memory.max").write_text("max\n")
    (cgroup / "memory.current").write_text(f"{3 * GB}\n")
    assert host_memory(proc, cgroup).total == 16000000 << 10
    (cgroup / "memory.max").write_text(f"{4 * GB}\n")
    (cgroup / "memory.stat").write_text(f"anon 5\ninactive_file {GB}\nactive_file {GB // 2}\n")
    assert host_memory(proc, cgroup) == (2.5 * GB, 4 * GB)
    (cgroup / "memory.current").write_text(f"{9 * GB}\n")
    assert host_memory(proc, cgroup).free == 0


def test_a_gpu_tells_what_it_has() -> None:
    driver = FakeDriver()

    def answer(free, total):
        free._obj.value, total._obj.value = 5, 7
        return 0

    driver.answers["cuMemGetInfo_v2"] = answer
    with installed(lambda: driver):
        assert free_memory("cuda", 1) == (5, 7) and driver.context == 1001
    assert free_memory("cpu") == pytest.approx(host_memory(), rel=0.2)
