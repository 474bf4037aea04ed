"""`attend` of kernels for many rows: keys and values flow through shared memory that the stream
lends."""

from __future__ import annotations

from typing import Any

import eventtensor as et

from .attention import at_once, softmax

# For a GPU, of device/cuda/attention_mixed.cuh.
_ATTEND = """
#include "cuda/attention_mixed.cuh"
constexpr int ROOM = {met};
float* const room = worker.arena.take<float>({met});
const int64_t next = et::tile_ahead(worker);
et::attention::attend_mixed<q_0, q_1, kv_2, {heads}, ROOM>(
    worker, et::idle_memory(worker), room, {{{tile}, next}}, q, left, kv,
    {{all_left, all_left, all_pages, {after}, {heads} * 2 * kv_2 * q_1}}, out, ml);
"""


def fits_kv_pipeline(group: int, width: int, page: int) -> bool:
    """True for heads and pages that the flow is cut for."""
    return group <= 8 and width in (64, 128) and page % 16 == 0


def reduce_floats(group: int, width: int, heads: int = 1) -> int:
    """Floats where the warps' parts of so many heads of keys meet (device/cuda/attention_tile.cuh):
    of large heads half at a time; of several all but the last strands of a warp."""
    even = group + group % 2
    strands = 8 - 8 // heads if heads > 1 else 8 if even * width <= 512 else 4
    return heads * (strands * even * width + 16 * group)


def attend_mixed(dtype: Any, heads: int, group: int, width: int, tile: str) -> Any:
    """As `attend`. `heads`: of keys, each so wide and with a `group` of queries; tiles are those of
    an item one after the other, `tile` is the number of this one in C++. `all_kv` has what the next
    task begins with."""
    @et.task(cuda=_ATTEND.format(heads=heads, met=reduce_floats(group, width), after=at_once(heads),
                                 tile=tile))
    def attend(q, left, kv, all_left, all_pages, all_kv, out, ml):
        out[:], ml[:] = softmax(q, left, kv, dtype)

    return attend
