"""`attend` of mixed batches (prefill and decode) on a GPU: a pipeline of asynchronous copies brings
keys and values into shared memory that the weight pipeline lends. The result is that of
attention.py."""

from __future__ import annotations

from typing import Any

import eventtensor as et

from ..kernels import header
from .attention import items_in_flight, softmax

NEXT_KV_BYTES_PER_WARP = 8 * 1024  # keys and values that a warp loads for its next task

_ATTEND = """
constexpr int SMEM_FLOATS = {floats};
const int64_t next = et::next_tile(worker);
et::attention::attend_mixed<q_0, q_1, kv_2, {heads}, SMEM_FLOATS>(
    worker, et::persistent_smem(worker), smem, {{{tile}, next}}, q, left, kv,
    {{all_left, all_left, all_pages, {after}, {heads} * 2 * kv_2 * q_1}}, out, ml);
"""


def fits_kv_pipeline(group: int, width: int, page: int) -> bool:
    """True if the KV pipeline supports these heads and pages."""
    return group <= 8 and width in (64, 128) and page % 16 == 0


def reduce_floats(group: int, width: int, heads: int = 1) -> int:
    """Floats of shared memory for SplitSoftmaxReduce of `heads` KV heads
    (llm/kernels/attention_tile.cuh): half of the KV partitions of a large head, or all but the last
    ones of several heads."""
    even = group + group % 2
    partitions = 8 - 8 // heads if heads > 1 else 8 if even * width <= 512 else 4
    return heads * (partitions * even * width + 16 * group)


def attend_mixed(dtype: Any, heads: int, group: int, width: int, tile: str) -> Any:
    """Like `attend`. `heads`: the KV heads, each of `width` elements and with `group` query heads.
    The tasks of an item follow each other in the grid; `tile` is C++ for the number of this task.
    `all_kv` has the first tokens of the next task."""
    floats = reduce_floats(group, width)
    source = _ATTEND.format(heads=heads, floats=floats, after=items_in_flight(heads), tile=tile)

    @et.task(
        cuda=et.CudaBody(
            source,
            prefetches_next_tile=True,
            persistent_bytes_per_warp=NEXT_KV_BYTES_PER_WARP,
            scratch=(et.Scratch("smem", et.f32, floats),),
            headers=header("attention_mixed.cuh"),
        )
    )
    def attend(q, left, kv, all_left, all_pages, all_kv, out, ml):
        out[:], ml[:] = softmax(q, left, kv, dtype)

    return attend
