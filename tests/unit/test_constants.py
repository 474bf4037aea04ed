"""Constants of headers are those of generated code."""

from __future__ import annotations

from eventtensor.codegen.cuda.constants import TABLE, header
from eventtensor.runtime.cpp_build import DEVICE


def test_the_header_is_printed_from_the_table() -> None:
    assert (DEVICE / "cuda" / "constants.cuh").read_text() == header(), "run make constants"


def test_no_header_defines_a_constant_of_the_table_again() -> None:
    names = {c.name for c in TABLE}
    assert len(names) == len(TABLE)
    for path in DEVICE.rglob("*.*h"):
        if path.name != "constants.cuh":
            text = path.read_text()
            assert not [n for n in names if f"constexpr uint32_t {n} =" in text], path.name
