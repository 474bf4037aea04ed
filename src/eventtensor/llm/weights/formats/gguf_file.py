"""Reads the container of a GGUF file: metadata, and shape, type and place of each tensor. Their
meaning is in gguf_checkpoint.py.

This module reads the header itself, because the reader of the package `gguf` makes an array of
every token and takes seconds. The package unpacks quantised blocks.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, TypeVar

import ml_dtypes
import numpy as np

from ....errors import BadModelFile, UnsupportedTensorType
from ...array_types import Array, Shape
from ...optional_packages import need

T = TypeVar("T")

_SCALARS = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?",
    10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
_STRING, _ARRAY = 8, 9
_VERSIONS = (2, 3)
_ALIGNMENT = 32

# Bounds of a header: far more than published models have, and few enough to read at once. A broken
# number is an error where it stands.
_LIMITS = {
    "tensors": 1 << 17, "keys": 1 << 16, "axes": 4, "bytes of a key": 1 << 10,
    "bytes of a tensor's name": 1 << 10, "bytes of a text": 1 << 22, "elements": 1 << 21,
    "bytes of a header": 1 << 27,
}
_MIN_BYTES = {"tensors": 32, "keys": 13}  # of each

TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1")


@dataclass(frozen=True)
class Entry:
    """A tensor: row-major shape, ggml's name of the type, and its mapped bytes."""

    shape: Shape
    type: str
    data: Array

    def values(self) -> Array:
        """The elements as float32, or bfloat16 if the file has bfloat16."""
        match self.type:
            case "F32":
                return self.data.view("<f4").reshape(self.shape)
            case "BF16":
                wide: Array = self.data.view(ml_dtypes.bfloat16)
                return wide.reshape(self.shape)
            case _:
                gguf = need("gguf")
                kind = gguf.GGMLQuantizationType[self.type]
                rows = self.data.reshape(*self.shape[:-1], -1)
                found: Array = gguf.quants.dequantize(rows, kind)
                return found.astype(np.float32, copy=False).reshape(self.shape)


@dataclass(frozen=True)
class GgufFile:
    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, Entry]


def read_gguf(path: Path) -> GgufFile:
    """Maps the file and reads its header."""
    try:
        raw = np.memmap(path, np.uint8, "r")
    except (OSError, ValueError) as e:
        raise BadModelFile(f"{path} cannot be read: {e}") from e
    r = _Reader(path, raw)
    if bytes(raw[:4]) != b"GGUF":
        raise BadModelFile(f"{path} is not a GGUF file: it starts with {bytes(raw[:4])!r}")
    r.at = 4
    version = r.number("<u4")
    if version not in _VERSIONS:
        raise BadModelFile(f"{path} is GGUF version {version}; 2 and 3, little-endian, are read")
    tensors, keys = r.count("<u8", "tensors", "the header"), r.count("<u8", "keys", "the header")
    r.check_left(tensors * _MIN_BYTES["tensors"] + keys * _MIN_BYTES["keys"])
    metadata = _unique(path, (_pair(r) for _ in range(keys)))
    infos = _unique(path, ((i.name, i) for i in (_info(r) for _ in range(tensors))))
    step = metadata.get("general.alignment", _ALIGNMENT)
    if type(step) is not int or not 1 <= step <= 1 << 20 or step & (step - 1):
        raise BadModelFile(f"{path}: general.alignment is {step!r}, which is no power of two")
    start = -(-r.at // step) * step
    return GgufFile(path, metadata, {n: _entry(path, raw, start, i) for n, i in infos.items()})


def _unique(path: Path, pairs: Iterator[tuple[str, T]]) -> dict[str, T]:
    found: dict[str, T] = {}
    for name, value in pairs:
        if name in found:
            raise BadModelFile(f"{path}: its header has {name!r} twice")
        found[name] = value
    return found


def _pair(r: _Reader) -> tuple[str, Any]:
    key = r.string("bytes of a key", "a key")
    return key, r.value(r.number("<u4"), key)


@dataclass(frozen=True)
class _Info:
    name: str
    shape: Shape
    type: int
    offset: int


def _info(r: _Reader) -> _Info:
    name = r.string("bytes of a tensor's name", "a tensor")
    axes = r.count("<u4", "axes", name)
    shape = tuple(r.number("<u8") for _ in range(axes))
    if not shape or 0 in shape:
        raise r.error(f"tensor {name} has shape {shape[::-1]}")
    return _Info(name, shape[::-1], r.number("<u4"), r.number("<u8"))


def _entry(path: Path, raw: Array, start: int, info: _Info) -> Entry:
    gguf = need("gguf")
    known = {int(k): k.name for k in gguf.GGMLQuantizationType}
    name = known.get(info.type, f"number {info.type}")
    if name not in TYPES:
        raise UnsupportedTensorType(f"{info.name} is {name}; supported are {', '.join(TYPES)}")
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    if info.shape[-1] % block:
        raise BadModelFile(f"{path}: {info.name} has rows of {info.shape[-1:]}, not of {block}s")
    first, count = start + info.offset, prod(info.shape) // block * size
    if first + count > raw.size:
        raise BadModelFile(
            f"{path} ends at byte {raw.size}; {info.name} lies at {first} to {first + count}"
        )
    return Entry(info.shape, name, raw[first : first + count])


class _Reader:
    """Reads a header from front to back, up to the limit of its length."""

    def __init__(self, path: Path, raw: Array) -> None:
        self._path, self._raw, self.at = path, raw.data, 0

    def error(self, what: str) -> BadModelFile:
        return BadModelFile(f"{self._path}: {what}, at byte {self.at} of its header")

    def check_left(self, count: int) -> None:
        """Raises an error if fewer bytes are left."""
        if self.at + count > len(self._raw):
            raise BadModelFile(f"{self._path} ends inside its header, at byte {len(self._raw)}")

    def take(self, count: int) -> memoryview:
        self.check_left(count)
        end = self.at + count
        if end > _LIMITS["bytes of a header"]:
            raise self.error(f"the header is longer than {_LIMITS['bytes of a header']} bytes")
        found = self._raw[self.at : end]
        self.at = end
        return found

    def count(self, kind: str, what: str, of: str) -> int:
        found = int(self.number(kind))
        if found > _LIMITS[what]:
            raise self.error(f"{of} has {found} {what}, and {_LIMITS[what]} at most can be")
        return found

    def number(self, kind: str) -> Any:
        return np.frombuffer(self.take(np.dtype(kind).itemsize), kind)[0].item()

    def string(self, what: str = "bytes of a text", of: str = "a value") -> str:
        (length,) = struct.unpack("<Q", self.take(8))
        if length > _LIMITS[what]:
            raise self.error(f"{of} has {length} {what}, and {_LIMITS[what]} at most can be")
        return str(self.take(length), "utf-8", "replace")

    def value(self, kind: int, key: str) -> Any:
        if kind == _STRING:
            return self.string(of=key)
        if kind == _ARRAY:
            return self._array(self.number("<u4"), self.count("<u8", "elements", key), key)
        if kind not in _SCALARS:
            raise self.error(f"{key} is a metadata value of unknown type {kind}")
        return self.number(_SCALARS[kind])

    def _array(self, kind: int, count: int, key: str) -> list[Any]:
        if kind == _STRING:
            self.check_left(count * 8)
            return [self.string(of=key) for _ in range(count)]
        if kind not in _SCALARS:
            raise self.error(f"{key} is an array of metadata type {kind}")
        dtype = np.dtype(_SCALARS[kind])
        return list(np.frombuffer(self.take(count * dtype.itemsize), dtype).tolist())
