"""Device arrays as arguments, as far as it goes without a device: the memory is the host's, and
nothing but its address, shape and dtype is looked at."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import eventtensor as et
from eventtensor.errors import NotContiguous, ReadOnlyOutput, WrongDType, WrongShape
from eventtensor.runtime.arguments import bind
from eventtensor.runtime.cuda.device_arrays import DeviceArray, adopt
from eventtensor.runtime.interface import interface_of


def shown(x: np.ndarray, read_only: bool = False) -> SimpleNamespace:
    interface = {"data": (x.ctypes.data, read_only), "shape": x.shape, "typestr": x.dtype.str,
                 "strides": None if x.flags.c_contiguous else x.strides, "version": 3}
    return SimpleNamespace(__cuda_array_interface__=interface)


class FakeTorch:
    """What is used of a CUDA tensor of torch."""

    is_cuda = True

    def __init__(self, x: np.ndarray, dtype: str) -> None:
        self.x, self.shape, self.dtype = x, x.shape, f"torch.{dtype}"

    def stride(self) -> tuple[int, ...]:
        return tuple(s // self.x.itemsize for s in self.x.strides)

    def data_ptr(self) -> int:
        return self.x.ctypes.data


def test_a_device_array_keeps_address_shape_and_owner(lab) -> None:
    a, c = np.zeros((33, 128), np.float32), np.zeros(33, np.float32)
    dims, bound = bind(interface_of(lab.plan(lab.programs["row_sum"]())),
                       adopt({"a": shown(a), "c": c}))
    assert dims == {"n": 33} and bound["c"] is c
    assert isinstance(bound["a"], DeviceArray) and bound["a"].address == a.ctypes.data


def test_torch_tensors_pass_bf16_on() -> None:
    x = np.zeros((3, 4), np.uint16)
    found = adopt({"x": FakeTorch(x, "bfloat16")})["x"]
    assert isinstance(found, DeviceArray)
    assert found.dtype == et.bf16.numpy and found.shape == (3, 4)
    with pytest.raises(WrongDType, match="quint8"):
        adopt({"x": FakeTorch(x, "quint8")})


@pytest.mark.parametrize(
    "a, read_only, error",
    [
        (np.zeros((4, 128), np.float64), False, WrongDType),
        (np.zeros((4, 256), np.float32)[:, ::2], False, NotContiguous),
        (np.zeros((4, 64), np.float32), False, WrongShape),
        (np.zeros((4, 128), np.float32), True, ReadOnlyOutput),
    ],
)
def test_a_device_array_is_checked_like_any_other(lab, a, read_only, error) -> None:
    program = lab.plan(lab.programs["row_sum"]()).program
    c = shown(np.zeros(4, np.float32), read_only)
    with pytest.raises(error):
        bind(interface_of(program), adopt({"a": shown(a), "c": c}))


def test_an_empty_device_array_is_an_array() -> None:
    found = adopt({"x": shown(np.zeros((0, 4), np.float32))})["x"]
    assert isinstance(found, DeviceArray) and found.shape == (0, 4) and found.flags.writeable
