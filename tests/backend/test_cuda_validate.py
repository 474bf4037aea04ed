"""`kernel.validate` of target cuda: what lies on the device is checked on the host."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import eventtensor as et
from eventtensor.errors import DataRefused
from eventtensor.runtime.cuda import cuda_kernel
from eventtensor.runtime.cuda.cuda_build import Cubin, Usage
from tests.support.device_side import on_device
from tests.support.fake_driver import FakeDriver, installed


@et.task
def copy(x, o):
    o[:] = x


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch) -> Iterator[et.Kernel]:
    """y[i] = x[at[i]], compiled for a device of paper."""
    cubin = tmp_path / "no.cubin"
    cubin.write_bytes(b"no code")
    monkeypatch.setattr(
        cuda_kernel, "build_cubin", lambda *_: Cubin(cubin, "", True, Usage(0, 0, 0, 0))
    )
    p, n = et.Program("pick"), et.dim("n", max=64)
    at = p.input("at", (n,), et.i32, bound=7)
    x, y = p.input("x", (8,), et.f32), p.output("y", (n,), et.f32)
    p.call(copy, grid=(n,), reads=lambda i: x[at[i]], writes=lambda i: y[i])
    driver = FakeDriver(1)
    with installed(lambda: driver):
        made = et.compile(p, target="cuda")
        yield made
        made.close()


@pytest.mark.parametrize("place", [on_device, lambda x: x])
def test_arrays_of_the_device_and_of_the_host_are_checked(kernel, place):
    rest = {"x": place(np.zeros(8, np.float32)), "y": place(np.zeros(3, np.float32))}
    kernel.validate(at=place(np.array([7, 0, 1], np.int32)), **rest)
    with pytest.raises(DataRefused, match=r"at\[1\] = 9 is outside its bound 0..7"):
        kernel.validate(at=place(np.array([7, 9, 1], np.int32)), **rest)
