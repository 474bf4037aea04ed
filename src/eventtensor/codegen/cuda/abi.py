"""The structs that host and generated CUDA share, besides the Report and the TraceRecord of every
back end. An artifact of another VERSION is refused: raise it whenever a struct or its use changes.
"""

from __future__ import annotations

from ..abi import REPORT, TRACE, Field, Struct
from .maps import BYTES, COLUMNS, Maps

VERSION = 8
STAMPS = 1024  # launches that the host knows the times of
PROGRESS = Struct(
    "Progress",
    "one worker: tasks completed in this launch, whether it is inside a body, and how many trace "
    "records its last launch made",
    (Field("done"), Field("busy"), Field("traced")),
)
SETS = Struct(
    "Sets",
    "a pair of cell sets between launches: whose turn it is, how much of each was used, and the "
    "workers that have left this launch",
    (Field("parity"), Field("used_even"), Field("used_odd"), Field("left")),
)
CONTROL = Struct(
    "Control",
    "one kernel between launches: its launches so far, the abort flag, the step that ended or "
    "failed last, and when the last launch began",
    (Field("epoch"), Field("abort"), Field("reported"), Field("step"), Field("began")),
)
STAMP = Struct(
    "Stamp",
    "a launch that is over, in host memory: its number, its step, and by the clock of the GPU when "
    "it began and ended",
    (Field("number"), Field("step"), Field("began"), Field("ended")),
)
WAITED = Struct(
    "Waited",
    "debug: the first wait for a cell, to be compared with the cell's final value",
    (
        Field("taken"), Field("event"), Field("index"), Field("target"), Field("call"),
        Field("coords", per_coord=True),
    ),
)
SHARED = Struct(
    "Shared",
    "what all workers of a launch share: device memory, and the limit of a wait",
    (
        Field("cells", "int64_t*"), Field("capacity"), Field("sets", "Sets*"),
        Field("control", "Control*"), Field("report", "Report*"), Field("progress", "Progress*"),
        Field("arena", "char*"), Field("arena_bytes"), Field("words", "int64_t*"),
        Field("word_count"), Field("trace", "TraceRecord*"), Field("trace_capacity"),
        Field("waited", "Waited*"), Field("delay_seed"), Field("step"), Field("limit_ns"),
        Field("stamps", "Stamp*"), Field("number"),
    ),
)
STRUCTS = (REPORT, TRACE, PROGRESS, SETS, CONTROL, STAMP, WAITED, SHARED)


def structs(rank: int, dims: int, tensors: int) -> list[str]:
    """All of them, and the arguments of one launch."""
    lines = [f"constexpr int RANK = {rank};", f"constexpr int64_t STAMPS = {STAMPS};"]
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


def maps(found: Maps) -> list[str]:
    """Arguments of every launch, if there are any: for lines of few and of many columns of each,
    and for pages of weights."""
    arrays = (("of", len(COLUMNS), found.found), ("pages", 1, found.pages))
    return [
        "struct Maps {",
        *(f"  et::TensorMap {name}[{each * len(some)}];  // "
          + ", ".join(f"{m.tensor} by {m.width}" for m in some)
          for name, each, some in arrays if some),
        "};",
        f"static_assert(sizeof(Maps) == {BYTES * found.count});",
    ]
