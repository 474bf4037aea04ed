"""The compiler of the tests: its precompiled headers change no byte of a kernel, and hide none."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from moe import moe

import eventtensor as et
from eventtensor.config import environment
from eventtensor.runtime.build import build_library


@pytest.mark.parametrize("debug", [False, True])
def test_a_kernel_has_the_same_bytes_without_them(debug: bool, tmp_path: Path) -> None:
    source = str(et.compile(moe(), target="cpu", debug=debug).source)
    real = os.environ.get("ET_TEST_CXX", environment().cxx)
    made = [build_library(source, "moe", replace(environment(), cache_dir=tmp_path, cxx=cxx)).path
            for cxx in (environment().cxx, real)]
    assert made[0].read_bytes() == made[1].read_bytes()
