"""Targets of GPUs, by name and by what a driver says."""

from __future__ import annotations

import pytest

from eventtensor.errors import BadOption
from eventtensor.targets.devices import device_target, find_device
from eventtensor.targets.h200 import H200
from eventtensor.targets.target import Feature


@pytest.mark.parametrize(("name", "architecture", "multiprocessors"), [
    ("h200", "sm_90a", 132), ("H100", "sm_90a", 132), ("sm_90", "sm_90a", 132),
    ("sm_90a", "sm_90a", 132), ("a100", "sm_80", 108), ("sm_80", "sm_80", 108),
    ("sm_89", "sm_89", 128), ("b200", "sm_100a", 148), ("sm_100a", "sm_100a", 148),
    ("rtx5090", "sm_120a", 170),
])
def test_a_device_has_a_name(name: str, architecture: str, multiprocessors: int) -> None:
    found = find_device(name)
    assert (found.architecture, found.multiprocessors) == (architecture, multiprocessors)


@pytest.mark.parametrize("name", ("h20", "", "sm_", "sm_70", "0"))
def test_an_unknown_device_is_an_error_with_the_names(name: str) -> None:
    with pytest.raises(BadOption, match="unknown device") as caught:
        find_device(name)
    assert "h200" in caught.value.hint and "sm_120" in caught.value.hint


def test_each_way_to_multiply_is_on_the_architectures_that_have_it() -> None:
    def those_with(*features: Feature) -> set[str]:
        names = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
        return {n for n in names if find_device(n).supports(*features)}

    assert those_with(Feature.wgmma, Feature.tma) == {"sm_90"}
    assert those_with(Feature.tma) == {"sm_90", "sm_100", "sm_120"}
    assert those_with(Feature.tcgen05) == {"sm_100"}
    assert len(those_with(Feature.mma_sync, Feature.ldmatrix, Feature.bf16_dot)) == 6


def test_a_real_gpu_has_the_target_of_its_name() -> None:
    assert device_target(9, 0, 132, 227 * 1024) == H200
    assert device_target(10, 3, 160, 227 * 1024).supports(Feature.tcgen05)
    assert device_target(10, 3, 160, 227 * 1024).architecture == "sm_103a"
    assert device_target(8, 7, 16, 163 * 1024).architecture == "sm_87"
    assert device_target(7, 5, 40, 64 * 1024).capabilities.features == frozenset()
