"""What the run time relies on, asked of nvcc: structs and numbers of cuda.h, shared structs in all
flavours, and that a trace which is off leaves nothing behind."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from shutil import which

import pytest

from eventtensor.codegen.cuda import generate
from eventtensor.runtime.cuda import driver as cuda_driver
from eventtensor.runtime.cuda.launch import LaunchAttribute, LaunchConfig
from tests.support.ptx import ptx_of

LAYOUT = """
#include <cuda.h>
#include <cstddef>
static_assert(sizeof(CUlaunchConfig) == {config});
static_assert(offsetof(CUlaunchConfig, hStream) == {stream});
static_assert(offsetof(CUlaunchConfig, attrs) == {attributes});
static_assert(offsetof(CUlaunchConfig, numAttrs) == {count});
static_assert(sizeof(CUlaunchAttribute) == {attribute});
static_assert(offsetof(CUlaunchAttribute, value) == {value});
static_assert(CU_LAUNCH_ATTRIBUTE_COOPERATIVE == 2);
static_assert(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION == 6);
static_assert(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH == {cooperative});
static_assert(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT == {multiprocessors});
static_assert(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN == {shared});
static_assert(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES == {dynamic});
static_assert(CU_MEMHOSTALLOC_DEVICEMAP == {mapped});
"""


pytestmark = pytest.mark.skipif(which("nvcc") is None, reason="there is no nvcc")


def test_structs_and_numbers_are_those_of_cuda_h(tmp_path: Path) -> None:
    text = LAYOUT.format(
        config=ctypes.sizeof(LaunchConfig), stream=LaunchConfig.stream.offset,
        attributes=LaunchConfig.attributes.offset, count=LaunchConfig.attribute_count.offset,
        attribute=ctypes.sizeof(LaunchAttribute), value=LaunchAttribute.value.offset,
        cooperative=cuda_driver.COOPERATIVE_LAUNCH, multiprocessors=cuda_driver.MULTIPROCESSORS,
        shared=cuda_driver.SHARED_BYTES, dynamic=cuda_driver.MAX_DYNAMIC_SHARED_BYTES,
        mapped=cuda_driver._DEVICE_MAP,
    )
    source = tmp_path / "layout.cpp"
    source.write_text(text)
    done = subprocess.run(["nvcc", "-std=c++17", "-c", "-o", str(tmp_path / "layout.o"), source],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("debug", (False, True))
def test_a_trace_that_is_off_leaves_nothing_behind(lab, debug: bool, tmp_path: Path) -> None:
    """With it, every task reads the clock; without it, only waits that last do."""
    plan = lab.plan(lab.programs["carried"](), "push")
    on, off = (ptx_of(generate(plan, debug=debug, trace=trace).text, tmp_path)
               for trace in (True, False))
    clock = "globaltimer"
    assert on.count(clock) >= off.count(clock) + 6  # two tasks: claimed, ready, ended
