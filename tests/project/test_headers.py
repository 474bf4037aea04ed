"""Headers: includes are paths from device/, and precompiling changes no byte of a kernel."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

import eventtensor as et
from eventtensor.config import environment
from eventtensor.runtime.cpp_build import DEVICE, build_library
from examples.moe import moe


@pytest.mark.parametrize("debug", [False, True])
def test_a_kernel_has_the_same_bytes_without_them(debug: bool, tmp_path: Path) -> None:
    source = str(et.compile(moe(), target="cpu", debug=debug).source)
    real = os.environ.get("ET_TEST_CXX", environment().cxx)
    made = [build_library(source, "moe", replace(environment(), cache_dir=tmp_path, cxx=cxx)).path
            for cxx in (environment().cxx, real)]
    assert made[0].read_bytes() == made[1].read_bytes()


def test_an_include_of_device_code_is_a_path_from_device() -> None:
    """The emulator puts files of the same paths in front, which other paths would miss."""
    included = {
        (str(path.relative_to(DEVICE)), name)
        for path in DEVICE.rglob("*.*")
        if path.suffix in (".h", ".cuh", ".cpp")
        for name in re.findall(r'#include "(.+)"', path.read_text())
    }
    assert len(included) > 50
    assert [(by, name) for by, name in included if not (DEVICE / name).is_file()] == []
