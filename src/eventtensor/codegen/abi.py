"""The structs that host and generated C++ share: one definition gives the C++ text (with its
static_asserts) and the NumPy dtype. `rank` is the longest coordinate of a program. An artifact of
another VERSION is refused: raise it whenever a struct or its use changes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

VERSION = 3


@dataclass(frozen=True, slots=True)
class Field:
    """Eight bytes, or `rank` times eight; `ctype` is the C++ type where it is not int64_t."""

    name: str
    ctype: str = "int64_t"
    per_coord: bool = False


@dataclass(frozen=True, slots=True)
class Struct:
    name: str
    comment: str
    fields: tuple[Field, ...]

    def dtype(self, rank: int) -> np.dtype[np.void]:
        return np.dtype([
            (f.name, np.int64, (rank,)) if f.per_coord else (f.name, np.int64) for f in self.fields
        ])

    def cpp(self, rank: int) -> list[str]:
        dtype = self.dtype(rank)
        lines = [f"struct {self.name} {{  // {self.comment}"]
        for f in self.fields:
            lines.append(f"  {f.ctype} {f.name}{'[RANK]' if f.per_coord else ''};")
        lines.append("};")
        lines.append(f"static_assert(sizeof({self.name}) == {dtype.itemsize});")
        last = self.fields[-1].name
        assert dtype.fields is not None
        offset = dtype.fields[last][1]
        lines.append(f"static_assert(offsetof({self.name}, {last}) == {offset});")
        return lines


REPORT = Struct(
    "Report",
    "the first thing that went wrong in a launch",
    (
        Field("code"), Field("worker"), Field("call"), Field("what"), Field("place"),
        Field("expected"), Field("seen"), Field("coords", per_coord=True),
    ),
)
TRACE = Struct(
    "TraceRecord",
    "one task: when it was claimed, when its waits were over, when it ended, and how long it stood "
    "still for want of the stream (ns)",
    (
        Field("worker"), Field("call"), Field("t_claim"), Field("t_ready"), Field("t_end"),
        Field("stalled"), Field("coords", per_coord=True),
    ),
)
HOLD = Struct(
    "Hold",
    "debug: this task waits until so many others of the launch have completed",
    (Field("call"), Field("until"), Field("rank"), Field("coords", per_coord=True)),
)
LAUNCH = Struct(
    "Launch",
    "one launch: dims by name, tensors in program order",
    (
        Field("dims", "const int64_t*"), Field("tensors", "void* const*"), Field("delay_seed"),
        Field("holds", "const Hold*"), Field("hold_count"), Field("done_before"),
    ),
)
STRUCTS = (REPORT, TRACE, HOLD, LAUNCH)

# Report.code, as in device/worker.h.
(
    STUCK_WAIT, STUCK_QUEUE, LOAD_BOUND, REGION_RANGE, COUNT_WRONG, GATHER_RANGE, CELL_RANGE,
    STUCK_FLAG, NO_MEMORY,
) = range(1, 10)


def cpp_structs(rank: int) -> list[str]:
    lines = [f"constexpr int RANK = {rank};"]
    for s in STRUCTS:
        lines += ["", *s.cpp(rank)]
    return lines
