"""The types of what was measured on a machine, with units in the names.

The passes of `schedule` and the back ends read these values. So do `tile_sizes.py`,
`attention_block.py` and `attention_decode_single.py` in `llm/model`. The values, and the experiment
behind each, are in the file of the machine.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StreamCosts:
    """How weights stream through the shared memory of a block. The producer warp brings them stage
    by stage, ahead of the tasks. A hop is an event for which a task waits."""

    min_stages: int
    spans_per_stage: int
    row_bytes_per_stage: int
    max_whole_columns: int
    max_packed_whole_columns: int
    max_whole_bytes: int
    min_held_bytes: int
    max_held_bytes: int
    max_held_bytes_per_task: int
    small_task_bytes: int
    long_task_bytes: int
    small_task_bytes_in_flight: int
    bytes_in_flight: int
    no_hop_bytes_in_flight: int
    long_task_burst_bytes: int
    indexed_task_bytes_in_flight: int
    wide_burst_bytes: int
    several_tiles_bytes_in_flight: int
    l2_prefetch_stages: int

    def stage_spans(self, spans: int, bundle: int) -> int:
        """Spans of a bundle in one stage: the most that divide them."""
        return max(n for n in range(1, self.spans_per_stage // bundle + 1) if spans % n == 0)

    def stages_whole_operand(self, columns: int, row_bytes: int) -> bool:
        """True if the other side of a product lies in shared memory as a whole. If not, it goes
        line by line (packed weights only)."""
        return columns <= self.max_whole_columns and columns * row_bytes <= self.max_whole_bytes


@dataclass(frozen=True, slots=True)
class HandoffCosts:
    """Between which sizes a kind of hand-off pays."""

    max_tagged_bytes_per_task: int
    max_tagged_bytes_polled: int
    min_bulk_bytes: int
    max_prefetch_elements: int
    tagged_loads_in_flight: int


@dataclass(frozen=True, slots=True)
class SharedMemoryCosts:
    """How a block shares its memory out between pipeline, activations and temporaries."""

    stage_bytes: int
    min_temporary_bytes: int
    max_temporary_bytes: int
    setup_bytes: int
    few_columns: int


@dataclass(frozen=True, slots=True)
class TileCosts:
    """How the matrices of a model are cut. Costs in bytes are those of the weights that stream in
    the same time."""

    activation_line_bytes: int
    partial_sum_bytes: int
    min_worker_share: float
    max_score_parts: int
    max_batch_score_parts: int


@dataclass(frozen=True, slots=True)
class AttentionCosts:
    """How many heads a task of attention takes, by the words that it writes."""

    max_rope_words: int
    max_rope_part_words: int
    min_combine_elements: int
    max_combine_elements: int
    max_append_words: int


@dataclass(frozen=True, slots=True)
class CostModel:
    """All that was measured on a machine and decides a plan."""

    stream: StreamCosts
    handoff: HandoffCosts
    shared_memory: SharedMemoryCosts
    tiles: TileCosts
    attention: AttentionCosts
