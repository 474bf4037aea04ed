"""Arguments that lie on the device are used where they are."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from eventtensor.config import Options
from eventtensor.errors import NotContiguous, WrongDType
from eventtensor.runtime.arguments import bind
from eventtensor.runtime.cuda.cuda_kernel import CudaKernel
from eventtensor.runtime.cuda.driver import DeviceBuffer, device, download, upload
from eventtensor.runtime.interface import interface_of
from tests.backend import conftest as lab


def on_device(x: np.ndarray) -> tuple[DeviceBuffer, SimpleNamespace]:
    """A stranger's array: nothing but the CUDA array interface."""
    device().activate()
    buffer = DeviceBuffer()
    buffer.reserve(x.nbytes)
    upload(buffer.address, x)
    shown = {"data": (buffer.address, False), "shape": x.shape, "typestr": x.dtype.str,
             "version": 3}
    return buffer, SimpleNamespace(__cuda_array_interface__=shown)


@pytest.mark.parametrize("debug", (False, True))
def test_device_arrays_are_read_and_written_in_place(debug: bool) -> None:
    plan = lab.make_plan(lab.row_sum(), "push")
    kernel = CudaKernel(plan, Options(target="cuda", debug=debug))
    host = lab.make_arrays(plan, {"n": 77})
    wanted = lab.reference(plan, {"n": 77}, host)["c"]
    (a_memory, a), (c_memory, c) = on_device(host["a"]), on_device(host["c"])
    dims, bound = bind(interface_of(plan), kernel.adopt({"a": a, "c": c}))
    kernel.launch(dims, bound)
    found = np.empty_like(wanted)
    download(found, c_memory.address)
    np.testing.assert_array_equal(found, wanted)
    mixed = {"a": a, "c": np.zeros_like(wanted)}
    dims, bound = bind(interface_of(plan), kernel.adopt(mixed))
    kernel.launch(dims, bound)
    np.testing.assert_array_equal(mixed["c"], wanted)
    for memory in (a_memory, c_memory):
        memory.free()
    kernel.close()


def test_device_arrays_are_checked_like_others() -> None:
    plan = lab.make_plan(lab.row_sum())
    memory, a = on_device(np.zeros((4, 128), np.float64))
    c = np.zeros(4, np.float32)
    with pytest.raises(WrongDType):
        bind(plan.program, CudaKernel.adopt({"a": a, "c": c}))
    a.__cuda_array_interface__ |= {"typestr": "<f4", "strides": (1024, 8)}
    with pytest.raises(NotContiguous):
        bind(plan.program, CudaKernel.adopt({"a": a, "c": c}))
    memory.free()
