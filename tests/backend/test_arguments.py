"""Arguments: dims from shapes, any array library, and an error for everything that is wrong."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import eventtensor as et
from eventtensor.errors import (
    DimConflict,
    DimOutOfRange,
    DimUnknown,
    MissingArgument,
    NotAnArray,
    NotContiguous,
    OverlappingArguments,
    ReadOnlyOutput,
    UnknownArgument,
    WrongDType,
    WrongRank,
    WrongShape,
)
from eventtensor.ir.expr import Const
from eventtensor.ir.program import Program
from eventtensor.ir.tensor import Role, Tensor
from eventtensor.runtime.arguments import bind
from eventtensor.runtime.interface import interface_of

N, M, Q = et.dim("n", max=100), et.dim("m", min=2, max=10), et.dim("q", max=9)
PROGRAM = Program(
    "p",
    (
        Tensor("x", Role.input, (N, M), et.f32),
        Tensor("ptr", Role.input, (N + 1,), et.i32),
        Tensor("t", Role.weight, (N.tiles(4), Const(3)), et.bf16),
        Tensor("s", Role.scratch, (N, N), et.f32),
        Tensor("y", Role.output, (N * 2,), et.f32),
    ),
    (), (), (),
)


def good(n: int = 6, m: int = 3) -> dict[str, Any]:
    return {
        "x": np.zeros((n, m), np.float32),
        "ptr": np.zeros(n + 1, np.int32),
        "t": np.zeros((-(-n // 4), 3), ml_dtypes.bfloat16),
        "y": np.zeros(2 * n, np.float32),
    }


def test_dims_come_from_shapes_and_nothing_is_copied() -> None:
    given = good()
    dims, arrays = bind(interface_of(PROGRAM), given)
    assert dims == {"n": 6, "m": 3}
    assert all(arrays[k] is given[k] for k in given)


def test_an_affine_axis_gives_its_dim() -> None:
    only = Program("p", (Tensor("ptr", Role.input, (N * 3 + Q + 1,), et.i32),
                         Tensor("z", Role.input, (Q - 1,), et.i32)), (), (), ())
    given = {"ptr": np.zeros(3 * 5 + 4 + 1, np.int32), "z": np.zeros(3, np.int32)}
    dims, _ = bind(interface_of(only), given)
    assert dims == {"n": 5, "q": 4}


def test_a_dim_no_shape_gives_is_a_keyword() -> None:
    tiles = Program("p", (Tensor("t", Role.input, (N.tiles(4),), et.f32),), (), (), ())
    with pytest.raises(DimUnknown, match="dim n"):
        bind(interface_of(tiles), {"t": np.zeros(2, np.float32)})
    assert bind(interface_of(tiles), {"t": np.zeros(2, np.float32), "n": 7})[0] == {"n": 7}
    with pytest.raises(WrongShape, match="n = 9"):
        bind(interface_of(tiles), {"t": np.zeros(2, np.float32), "n": 9})


class Box:
    """Another library's array: DLPack only."""

    def __init__(self, x: np.ndarray) -> None:
        self.x = x

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.x.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.x.__dlpack_device__()


class OnGpu(Box):
    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


def test_a_shape_without_dims_is_told_once() -> None:
    fixed = Program("p", (Tensor("t", Role.input, (Const(2), Const(3)), et.f32),), (), (), ())
    with pytest.raises(WrongShape, match=r"shape \(3, 3\), but is declared as \(2, 3\)"):
        bind(interface_of(fixed), {"t": np.zeros((3, 3), np.float32)})


def test_dlpack_shares_memory() -> None:
    given = good()
    plain = given["x"]
    _, arrays = bind(interface_of(PROGRAM), {**given, "x": Box(plain)})
    plain[2, 1] = 7
    assert arrays["x"][2, 1] == 7


class TorchTensor(Box):
    """As torch.Tensor: NumPy cannot take bf16 from it, int16 it can."""

    def __init__(self, x: np.ndarray, dtype: str) -> None:
        super().__init__(x)
        self.dtype = dtype

    def detach(self) -> TorchTensor:
        return self

    def view(self, dtype: str) -> TorchTensor:
        return TorchTensor(self.x, dtype)

    def numpy(self) -> np.ndarray:
        assert self.dtype != "bfloat16"
        return self.x


def test_torch_tensors_are_taken_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = SimpleNamespace(Tensor=TorchTensor, bfloat16="bfloat16", int16="int16")
    monkeypatch.setitem(sys.modules, "torch", torch)
    bits, y = np.full((2, 3), 0x3F80, np.int16), np.zeros(12, np.float32)
    given = {**good(), "t": TorchTensor(bits, "bfloat16"), "y": TorchTensor(y, "float32")}
    _, arrays = bind(interface_of(PROGRAM), given)
    arrays["y"][0] = 5
    assert y[0] == 5 and arrays["t"].dtype == ml_dtypes.bfloat16 and arrays["t"][0, 0] == 1


class Refusing:
    """As a tensor of torch that has no memory: it speaks DLPack, and says no."""

    def __init__(self, device: object, error: type[Exception]) -> None:
        self.device, self.error = device, error

    def __dlpack_device__(self) -> Any:
        if self.device is None:
            raise self.error("no memory")
        return self.device

    def __dlpack__(self, **_: object) -> object:
        raise self.error("no memory")


BROKEN: list[tuple[type[et.EventTensorError], str, dict[str, Any]]] = [
    (MissingArgument, "'y'", {"y": None}),
    (UnknownArgument, "'extra'", {"extra": np.zeros(1)}),
    (UnknownArgument, "'s'", {"s": np.zeros((6, 6), np.float32)}),
    (NotAnArray, "list", {"x": [[1.0]]}),
    (NotAnArray, "a type, not", {"x": np.ndarray}),
    (NotAnArray, "where its memory is: no memory", {"x": Refusing(None, RuntimeError)}),
    (NotAnArray, "where its memory is", {"x": Refusing(5, RuntimeError)}),
    (NotAnArray, "through DLPack: no memory", {"x": Refusing((1, 0), AssertionError)}),
    (NotAnArray, "CPU", {"x": OnGpu(np.zeros((6, 3), np.float32))}),
    (WrongDType, "float64", {"x": np.zeros((6, 3))}),
    (WrongDType, "bf16", {"t": np.zeros((2, 3), np.float16)}),
    (WrongRank, "1 axes", {"x": np.zeros(18, np.float32)}),
    (WrongShape, "'t'", {"t": np.zeros((3, 3), ml_dtypes.bfloat16)}),
    (WrongShape, "'ptr'", {"ptr": np.zeros(8, np.int32)}),
    (WrongShape, r"'y'.*13", {"y": np.zeros(13, np.float32)}),
    (DimOutOfRange, "outside 2..10", {"x": np.zeros((6, 1), np.float32)}),
    (DimConflict, "7 by the argument", {"n": 7}),
    (DimOutOfRange, "not an int", {"n": 6.0}),
    (NotContiguous, "strides", {"x": np.zeros((3, 6), np.float32).T}),
]


@pytest.mark.parametrize("error, text, change", BROKEN)
def test_every_mistake_has_its_error(error, text: str, change: dict[str, Any]) -> None:
    given = {k: v for k, v in {**good(), **change}.items() if v is not None}
    with pytest.raises(error, match=text):
        bind(interface_of(PROGRAM), given)


def test_dims_beyond_their_range_are_refused() -> None:
    with pytest.raises(DimOutOfRange, match=r"n is 101 .*outside 1\.\.100"):
        bind(interface_of(PROGRAM), good(n=101))


def test_two_shapes_that_disagree_are_named() -> None:
    two = Program("p", (Tensor("a", Role.input, (N,), et.f32),
                        Tensor("b", Role.input, (N,), et.f32)), (), (), ())
    with pytest.raises(DimConflict, match="3 by 'a' but 4 by the shape of 'b'"):
        bind(interface_of(two), {"a": np.zeros(3, np.float32), "b": np.zeros(4, np.float32)})


def test_a_read_only_output_is_refused() -> None:
    given = good()
    given["y"].flags.writeable = False
    with pytest.raises(ReadOnlyOutput, match="'y'"):
        bind(interface_of(PROGRAM), given)
    given["y"].flags.writeable = True
    given["x"].flags.writeable = False
    bind(interface_of(PROGRAM), given)


def test_overlap_is_refused_only_when_written() -> None:
    given = good()
    memory = np.zeros(40, np.float32)
    given["x"], given["y"] = memory[0:18].reshape(6, 3), memory[17:29]
    with pytest.raises(OverlappingArguments, match=r"'x' and 'y'|'y' and 'x'"):
        bind(interface_of(PROGRAM), given)
    given["y"] = memory[18:30]
    bind(interface_of(PROGRAM), given)
