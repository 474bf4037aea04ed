"""Constants that generated code and device headers share: one table, printed into
device/cuda/constants.cuh by `make constants`.

What one kernel decides goes into its own text as a macro, and structs are in abi.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.products import BUNDLES, MOST_SPAN, PANEL
from .maps import BOX_BYTES, COLUMNS, RUN

MAX_CLAIMED_TILES = 2  # tiles that may be claimed before they are begun
N128 = 128  # of a pass over a product
PERSISTENT_BYTES = 64 * 1024  # bytes of a pipeline that tasks may borrow
BATCH_SUMS = 512  # sums of a warp that are folded at once, or more if a bundle has more


@dataclass(frozen=True, slots=True)
class Constant:
    name: str
    value: int
    meaning: str


TABLE = (
    Constant("PANEL", PANEL, "rows of packed weights that lie together"),
    Constant("GROUP", BUNDLES[-1], "panels: the 64 rows of one wgmma"),
    Constant("MOST_SPAN", 2 * MOST_SPAN, "bytes of K that lie together in a panel"),
    Constant("SWIZZLE", BOX_BYTES, "bytes of a column of x that lie together"),
    Constant("N16", COLUMNS[0], "of a pass: products have as many as hold all of theirs,"),
    Constant("N64", COLUMNS[1], "or go over them"),
    Constant("N128", N128, "in several passes"),
    Constant("RUN", RUN, "bytes of weights that lie together in all boxes"),
    Constant("MAX_CLAIMED_TILES", MAX_CLAIMED_TILES, "tiles claimed before they are begun"),
    Constant("PERSISTENT_BYTES", PERSISTENT_BYTES, "bytes of a pipeline that tasks may borrow"),
    Constant("BATCH_SUMS", BATCH_SUMS, "sums of a warp that are folded at once"),
)


def header() -> str:
    """The text of device/cuda/constants.cuh."""
    lines = [
        "// Constants that generated code and these headers share. Printed from the table in",
        "// codegen/cuda/constants.py: change them there, then `make constants`.",
        "#pragma once",
        '#include "portable.h"',
        "",
        "namespace et {",
        "",
    ]
    lines += [f"constexpr uint32_t {c.name} = {c.value};  // {c.meaning}" for c in TABLE]
    return "\n".join([*lines, "", "}  // namespace et", ""])
