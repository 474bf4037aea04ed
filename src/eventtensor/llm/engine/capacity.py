"""How much fits into memory: the KV blocks, and from them the longest context.

The computation needs sizes only, so it runs before weights load. It raises an error with the
numbers if a request does not fit. The free memory itself is read in llm/runner/free_memory.py."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ...errors import BadOption, EventTensorError, OutOfMemory
from ..model.attention_block import SPLIT_TOKENS, page_tokens
from ..model.model_config import ModelConfig
from ..model.packed_layout import packed_shapes
from ..model.step_limits import MAX_REQUESTS
from ..model.tile_sizes import Layout
from ..runner.free_memory import FreeMemory

MAX_CACHE_GB = 1 << 20
GB = 1 << 30
_HOST_CACHE_BYTES, _HOST_CACHE_SHARE = 4 * GB, 0.25  # of the free memory, without cache_gb
_MAX_GPU_SHARE = 0.95  # of the free memory of a GPU
_GPU_CODE_BYTES = GB // 2  # for kernels and the driver
_SCRATCH_FACTOR = 4  # two kernels of many rows, whose scratch grows in powers of two


@dataclass(frozen=True)
class CapacityOptions:
    """The sizes that the user asks for. `max_model_len` None: what the model has and memory holds.
    `cache_gb` None: a part of the free memory; on a GPU weights, cache and scratch then take up to
    `gpu_memory_utilization` of all its memory."""

    max_model_len: int | None = None
    max_num_seqs: int = MAX_REQUESTS
    max_num_batched_tokens: int = 128
    cache_gb: float | None = None
    gpu_memory_utilization: float = 0.9

    def check(self) -> None:
        most = min(MAX_REQUESTS, self.max_num_batched_tokens)
        if not 1 <= self.max_num_seqs <= most or (self.max_model_len or 2) < 2:
            raise BadOption(
                f"{self.max_num_seqs} requests of {self.max_model_len or 'all'} tokens, "
                f"{self.max_num_batched_tokens} tokens a step",
                hint=f"1 to {MAX_REQUESTS} requests, a context of 2 or more, and a token of a step "
                "for each request",
            )
        if self.cache_gb is not None and not 0 <= self.cache_gb <= MAX_CACHE_GB:
            raise BadOption(f"cache_gb is {self.cache_gb}", hint=f"0 to {MAX_CACHE_GB}")
        if not 0 < self.gpu_memory_utilization <= 1:
            raise BadOption(f"gpu_memory_utilization is {self.gpu_memory_utilization}",
                            hint="above 0, up to 1")


@dataclass(frozen=True)
class Capacity:
    """The sizes of an engine. Its KV cache has `num_blocks` blocks of `block_tokens` tokens."""

    max_model_len: int
    num_blocks: int
    block_tokens: int
    block_bytes: int
    weight_bytes: int
    max_num_seqs: int

    @property
    def cache_tokens(self) -> int:
        return self.num_blocks * self.block_tokens

    @property
    def cache_bytes(self) -> int:
        return self.num_blocks * self.block_bytes

    @property
    def num_positions(self) -> int:
        """The context, in whole splits of attention."""
        return -(-self.max_model_len // SPLIT_TOKENS) * SPLIT_TOKENS

    @property
    def num_full_requests(self) -> int:
        """Requests of a whole context that run at the same time."""
        blocks_of_request = -(-self.max_model_len // self.block_tokens)
        return min(self.max_num_seqs, self.num_blocks // blocks_of_request)


def compute_capacity(
    config: ModelConfig, layout: Layout, element_bytes: int, options: CapacityOptions,
    memory: FreeMemory,
) -> Capacity:
    """`element_bytes`: of weights and cache. `memory` is the free memory before weights load."""
    options.check()
    block_tokens = page_tokens(config)
    block_bytes = (
        2 * config.layers * config.kv_heads * config.head_dim * block_tokens * element_bytes)
    weight_bytes = element_bytes * sum(
        prod(shape) for shape in packed_shapes(config, layout).values())
    wanted = min(options.max_model_len or config.max_position, config.max_position)
    room = _CacheRoom(config, block_tokens, block_bytes, weight_bytes, options, memory,
                      layout != "cpu")
    context = wanted if options.max_model_len else room.find_longest_context(wanted)
    return Capacity(context, room.count_blocks(context), block_tokens, block_bytes, weight_bytes,
                    options.max_num_seqs)


@dataclass(frozen=True)
class _CacheRoom:
    """The room for a KV cache beside weights and the memory that steps need."""

    config: ModelConfig
    block_tokens: int
    block_bytes: int
    weight_bytes: int
    options: CapacityOptions
    memory: FreeMemory
    is_gpu: bool

    def find_longest_context(self, context: int) -> int:
        """The longest context, of up to so many tokens, for which there are blocks."""
        few, many = 1, -(-context // self.block_tokens)  # blocks
        if self._max_blocks(context) >= many:
            return context
        while many - few > 1:
            middle = (few + many) // 2
            fits = self._max_blocks(middle * self.block_tokens) >= middle
            few, many = (middle, many) if fits else (few, middle)
        return min(context, max(2, few * self.block_tokens))

    def count_blocks(self, context: int) -> int:
        """Blocks for full contexts of all requests that run, or as many as there is room for."""
        each, most = -(-context // self.block_tokens), self._max_blocks(context)
        if most < each:
            raise self._too_small(context, each, most)
        blocks = min(self.options.max_num_seqs * each, most)
        free = self._cache_bytes(self._usable_bytes, context)
        if blocks * self.block_bytes > free:
            raise OutOfMemory(
                f"a cache of {_gb(blocks * self.block_bytes)}: {self._description}, and "
                f"{_gb(free)} are left for it",
                hint="less of cache_gb, of max_num_seqs or of max_model_len",
            )
        return blocks

    def _max_blocks(self, context: int) -> int:
        cache = self._cache_bytes(self._usable_bytes, context)
        if self.options.cache_gb is not None:
            cache = self.options.cache_gb * GB
        elif self.is_gpu:
            share = self.options.gpu_memory_utilization * self.memory.total
            cache = self._cache_bytes(min(self._usable_bytes, share), context)
        else:
            cache = min(_HOST_CACHE_BYTES, _HOST_CACHE_SHARE * cache)
        return int(cache) // self.block_bytes

    @property
    def _usable_bytes(self) -> float:
        """Bytes that weights, cache and steps may take together."""
        return (_MAX_GPU_SHARE if self.is_gpu else 1) * self.memory.free

    def _cache_bytes(self, usable: float, context: int) -> float:
        """Bytes that weights and steps leave. The host maps weights from files and may drop them
        from memory, so they do not count there."""
        weights = self.weight_bytes if self.is_gpu else 0
        return max(0.0, usable - weights - self._step_bytes(context))

    def _step_bytes(self, context: int) -> int:
        """Rope tables, tokens of penalties, logits, and scratch of split attention."""
        c, positions = self.config, 1 << (context - 1).bit_length()
        tokens = min(self.options.max_num_seqs * context,
                     self.memory.free // self.block_bytes * self.block_tokens)
        items = max_prefill_items(self.is_gpu) + tokens // SPLIT_TOKENS + MAX_REQUESTS
        scratch = _SCRATCH_FACTOR * items * c.heads * (c.head_dim + 2) * 4
        fixed = positions * (c.head_dim + MAX_REQUESTS) * 4 + 2 * MAX_REQUESTS * c.vocab * 4
        return scratch + fixed + (_GPU_CODE_BYTES if self.is_gpu else 0)

    @property
    def _description(self) -> str:
        free, weights = _gb(self.memory.free), _gb(self.weight_bytes)
        if self.is_gpu:
            return f"the GPU has {free} free, of which weights take {weights}"
        return f"this machine has {free} of memory free"

    def _too_small(self, context: int, each: int, most: int) -> EventTensorError:
        needed, max_tokens = f"{each * self.block_bytes / GB:.3g}", most * self.block_tokens
        shorter = f", or a context of {max_tokens}" if max_tokens > 1 else ""
        if self.options.cache_gb is not None:
            return BadOption(
                f"cache_gb is {self.options.cache_gb:g}: room for {max_tokens} tokens",
                hint=f"a context of {context} tokens needs {needed}{shorter}",
            )
        more = "a larger gpu_memory_utilization" if self.is_gpu else f"cache_gb of {needed}"
        return OutOfMemory(
            f"a context of {context} tokens needs {needed} GB of cache: "
            f"{self._description}, and the cache has room for {max_tokens} tokens",
            hint=more + shorter,
        )


def max_prefill_items(on_gpu: bool) -> int:
    """The most work items of attention that the prompts of a step have, so that a step far into a
    long prompt delays no other request, and scratch stays small. Shorter prompts never reach the
    bound. With 16384 on an H200, a prompt of 50000 tokens takes 16% longer."""
    return 32768 if on_gpu else 4096


def _gb(size_bytes: float) -> str:
    return f"{size_bytes / GB:.3g} GB"
