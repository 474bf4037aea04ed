"""Hopper (sm_90a): the H200, on which all costs were measured, and the H100 (SXM).

The two differ in their memory alone, which no plan asks for. docs/tuning has the tables of
the experiments.
"""

from __future__ import annotations

from .cost_model import (
    AttentionCosts,
    CostModel,
    HandoffCosts,
    SharedMemoryCosts,
    StreamCosts,
    TileCosts,
)
from .target import Capabilities, CudaTarget, Feature

KB = 1024

FEATURES = frozenset({
    Feature.cp_async, Feature.mma_sync, Feature.ldmatrix, Feature.bf16_dot,
    Feature.tma, Feature.dependent_launch, Feature.clusters, Feature.wgmma,
})

_STREAM = StreamCosts(
    # A held stage keeps its slot, and slots are used in turn. A task that holds one takes no more
    # stages than the smallest pipeline has, or producer and tasks wait for each other.
    min_stages=4,
    # 16 KB in a stage: 12 stages instead of 4 of 32 KB, and 48 KB in flight are three stages.
    spans_per_stage=4,
    # Shorter copies cost more to issue than to move.
    row_bytes_per_stage=2 * KB,
    # More columns, or more bytes of them beside the pipeline, go line by line.
    max_whole_columns=64,
    max_whole_bytes=32 * KB,
    # Of packed weights, one tile of columns.
    max_packed_whole_columns=16,
    # A smaller operand is not worth a stage. A larger one leaves no room to run ahead.
    min_held_bytes=1 * KB,
    max_held_bytes=16 * KB,
    max_held_bytes_per_task=64 * KB,
    # The pipeline holds more than the next task of this size, so hops decide the time.
    small_task_bytes=96 * KB,
    # Most bytes of a longer task come while it runs. A limit of 320 KB instead of 640 KB takes a
    # step of the 1B from 0.657 to 0.650 ms (context 1024), and the 8B stays at 3.75 ms.
    long_task_bytes=320 * KB,
    # Bytes in flight while a task waits: the hop's own traffic queues behind them. 64, 96 and
    # 128 KB for long tasks took 0.826, 0.832 and 0.834 ms: hops lose more than the stream gains.
    small_task_bytes_in_flight=32 * KB,
    bytes_in_flight=48 * KB,
    no_hop_bytes_in_flight=128 * KB,
    # Once a long task runs, no hop is pending: 96 KB took 3.821 ms, 176 KB 3.797 (8B, batch 1).
    long_task_burst_bytes=176 * KB,
    # Of shorter tasks whose operands are placed by run-time data, as the experts' down: 176 KB
    # took 2.005 ms, 96 KB 1.979 (30B-A3B, batch 1).
    indexed_task_bytes_in_flight=96 * KB,
    # With many columns, activations come through the same memory system.
    wide_burst_bytes=64 * KB,
    several_tiles_bytes_in_flight=80 * KB,
    # A full pipeline with nothing in flight asks for so many as far as the L2 (small tasks).
    l2_prefetch_stages=8,
)

_HANDOFF = HandoffCosts(
    # One hop takes 0.60 us by tagged words and 2.55 us by a counter while weights stream: a tag
    # saves the fence and the second read. But each reader polls every word. A chain of products
    # where all 128 workers read all that all have written takes 3.1 us a layer by tags and 3.8 by a
    # counter with 2048 words of 8 bytes, 8.4 and 8.2 with 4096. 132 tasks that fold 2112 such words
    # of each other take 5.3 and 6.7.
    max_tagged_bytes_per_task=36 * KB,
    max_tagged_bytes_polled=16 * KB * KB,
    # With fewer bytes, plain loads take no longer than a copy and its barrier: 8 KB by bulk copy
    # took 9.1 us a layer, 8.9 by loads.
    min_bulk_bytes=16 * KB,
    # Three elements for each thread, but for the warp that polls. A stage of the stream would come
    # no sooner, and take a slot.
    max_prefetch_elements=672,
    # Loads of 16 bytes that the registers of a thread hold at once.
    tagged_loads_in_flight=9,
)

_SHARED_MEMORY = SharedMemoryCosts(
    stage_bytes=16 * KB,
    min_temporary_bytes=8 * KB,
    max_temporary_bytes=96 * KB,
    # What a task has ahead of its product where temporaries lie among lines of activations.
    setup_bytes=1 * KB,
    # Temporaries lie in shared memory for so many columns. For 4 alone nothing was gained: 1.10,
    # 1.21 and 3.78 ms beside 1.11, 1.20 and 3.64.
    few_columns=16,
)

_TILES = TileCosts(
    # A line of activations and a part of K, in streamed weights.
    activation_line_bytes=20000,
    partial_sum_bytes=4 * KB,
    # A worker streams so much quicker at best where others do not stream.
    min_worker_share=0.8,
    # Parts of K of a router. For many rows a task for each row adds 8 parts up: the router takes
    # 3.1 us instead of 3.8 at 8 rows, and 4.2 instead of 4.6 at 64 (30B-A3B).
    max_score_parts=4,
    max_batch_score_parts=8,
)

_ATTENTION = AttentionCosts(
    # Words of a task of apply_rope: its own, and of all parts of K.
    max_rope_words=3072,
    max_rope_part_words=12288,
    # A task of combine takes half a row, so that all loads of a thread are on their way together.
    min_combine_elements=1024,
    max_combine_elements=2048,
    # As many as may travel in tagged words.
    max_append_words=3072,
)

COSTS = CostModel(_STREAM, _HANDOFF, _SHARED_MEMORY, _TILES, _ATTENTION)
H200 = CudaTarget("h200", "sm_90a", Capabilities(FEATURES, 132, 227 * KB), COSTS)
H100 = CudaTarget("h100", "sm_90a", H200.capabilities, COSTS)
