"""The structs that host and generated CUDA share, besides the Report of every back end."""

from __future__ import annotations

from ..abi import REPORT, Field, Struct

PROGRESS = Struct(
    "Progress",
    "one worker: tasks completed since the kernel was loaded, and whether it is inside a body",
    (Field("done"), Field("busy")),
)
CONTROL = Struct(
    "Control",
    "lives between launches: whose turn the cell sets are, how much of each was used, the abort",
    (
        Field("parity"), Field("used_even"), Field("used_odd"), Field("left"), Field("abort"),
        Field("reported"),
    ),
)
SHARED = Struct(
    "Shared",
    "what all workers of a launch share: device memory, and the limit of a wait",
    (
        Field("cells", "int64_t*"), Field("capacity"), Field("control", "Control*"),
        Field("report", "Report*"), Field("progress", "Progress*"), Field("arena", "char*"),
        Field("arena_bytes"), Field("limit_ns"),
    ),
)
STRUCTS = (REPORT, PROGRESS, CONTROL, SHARED)


def structs(rank: int, dims: int, tensors: int) -> list[str]:
    """All of them, and the arguments of one launch."""
    lines = [f"constexpr int RANK = {rank};"]
    for s in STRUCTS:
        lines += ["", *s.cpp(rank)]
    return [
        *lines, "",
        "struct Launch {  // one launch: dims by name, tensors in program order",
        f"  int64_t dims[{max(1, dims)}];",
        f"  void* tensors[{max(1, tensors)}];",
        "};",
        f"static_assert(sizeof(Launch) == {8 * (max(1, dims) + max(1, tensors))});",
    ]
