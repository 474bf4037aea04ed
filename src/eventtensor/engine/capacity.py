"""How much fits into memory: the context, the pages of the KV cache, and what they leave."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ..errors import BadOption, EventTensorError, OutOfMemory
from ..models.attention_block import SPLIT_TOKENS, page_tokens
from ..models.free_memory import FreeMemory
from ..models.model_config import ModelConfig
from ..models.step import MAX_REQUESTS
from ..models.tile_sizes import Layout
from ..models.weight_packing import packed_shapes

MAX_CACHE_GB = 1 << 20
GB = 1 << 30
_HOST_CACHE, _HOST_SHARE = 4 * GB, 0.25  # what a cache has on the host unless it is told
_SPARE = 0.95  # of the free memory of a GPU, at most
_CODE = GB // 2  # of a GPU, for kernels and what the driver has of its own
_GROWTH = 4  # two kernels of many rows, whose scratch grows in powers of two


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
    """Of an engine. A request has up to `max_model_len` tokens, in pages of `page` tokens."""

    max_model_len: int
    pages: int
    page: int
    page_bytes: int
    weight_bytes: int
    max_num_seqs: int

    @property
    def cache_tokens(self) -> int:
        return self.pages * self.page

    @property
    def cache_bytes(self) -> int:
        return self.pages * self.page_bytes

    @property
    def positions(self) -> int:
        """In whole splits of attention."""
        return -(-self.max_model_len // SPLIT_TOKENS) * SPLIT_TOKENS

    @property
    def full_requests(self) -> int:
        """Requests of a whole context that run at the same time."""
        return min(self.max_num_seqs, self.pages // -(-self.max_model_len // self.page))


def capacity(
    config: ModelConfig, layout: Layout, item: int, options: CapacityOptions, memory: FreeMemory
) -> Capacity:
    """`item`: bytes of an element of weights and cache. `memory` is what there is before weights
    are loaded."""
    options.check()
    page = page_tokens(config)
    page_bytes = 2 * config.layers * config.kv_heads * config.head_dim * page * item
    weights = sum(prod(shape) for shape in packed_shapes(config, layout).values()) * item
    wanted = min(options.max_model_len or config.max_position, config.max_position)
    sizes = _Sizes(config, page, page_bytes, weights, options, memory, layout != "cpu")
    context = wanted if options.max_model_len else sizes.longest(wanted)
    return Capacity(context, sizes.pages(context), page, page_bytes, weights, options.max_num_seqs)


@dataclass(frozen=True)
class _Sizes:
    config: ModelConfig
    page: int
    page_bytes: int
    weights: int
    options: CapacityOptions
    memory: FreeMemory
    on_gpu: bool

    def longest(self, context: int) -> int:
        """The longest context, of up to so many tokens, for which there are pages."""
        few, many = 1, -(-context // self.page)  # of pages
        if self._room(context) >= many:
            return context
        while many - few > 1:
            middle = (few + many) // 2
            fits = self._room(middle * self.page) >= middle
            few, many = (middle, many) if fits else (few, middle)
        return min(context, max(2, few * self.page))

    def pages(self, context: int) -> int:
        """For all requests that run, or as many as there is room for."""
        each, room = -(-context // self.page), self._room(context)
        if room < each:
            raise self._too_few(context, each, room)
        pages = min(self.options.max_num_seqs * each, room)
        if pages * self.page_bytes > (left := self._left(self._most, context)):
            raise OutOfMemory(
                f"a cache of {_gb(pages * self.page_bytes)}: {self._has}, and {_gb(left)} are left "
                "for it",
                hint="less of cache_gb, of max_num_seqs or of context",
            )
        return pages

    def _room(self, context: int) -> int:
        """BlockManager that the cache may have."""
        cache = self._left(self._most, context)
        if self.options.cache_gb is not None:
            cache = self.options.cache_gb * GB
        elif self.on_gpu:
            share = self.options.gpu_memory_utilization * self.memory.total
            cache = self._left(min(self._most, share), context)
        else:
            cache = min(_HOST_CACHE, _HOST_SHARE * cache)
        return int(cache) // self.page_bytes

    @property
    def _most(self) -> float:
        """Bytes that weights, cache and steps may have together."""
        return (_SPARE if self.on_gpu else 1) * self.memory.free

    def _left(self, most: float, context: int) -> float:
        """Beside weights and what steps need. The host maps weights from files, and may forget
        them."""
        weights = self.weights if self.on_gpu else 0
        return max(0.0, most - weights - self._of_steps(context))

    def _of_steps(self, context: int) -> int:
        """Angles, tokens of penalties, logits, and scratch for the parts of attention."""
        c, positions = self.config, 1 << (context - 1).bit_length()
        tokens = min(
            self.options.max_num_seqs * context, self.memory.free // self.page_bytes * self.page
        )
        items = max_prefill_items(self.on_gpu) + tokens // SPLIT_TOKENS + MAX_REQUESTS
        scratch = _GROWTH * items * c.heads * (c.head_dim + 2) * 4
        fixed = positions * (c.head_dim + MAX_REQUESTS) * 4 + 2 * MAX_REQUESTS * c.vocab * 4
        return scratch + fixed + (_CODE if self.on_gpu else 0)

    @property
    def _has(self) -> str:
        free, weights = _gb(self.memory.free), _gb(self.weights)
        if self.on_gpu:
            return f"the GPU has {free} free, of which weights take {weights}"
        return f"this machine has {free} of memory free"

    def _too_few(self, context: int, each: int, room: int) -> EventTensorError:
        needed, most = f"{each * self.page_bytes / GB:.3g}", room * self.page
        shorter = f", or a context of {most}" if most > 1 else ""
        if self.options.cache_gb is not None:
            return BadOption(
                f"cache_gb is {self.options.cache_gb:g}: room for {most} tokens",
                hint=f"a context of {context} tokens needs {needed}{shorter}",
            )
        more = "a larger gpu_memory_utilization" if self.on_gpu else f"cache_gb of {needed}"
        return OutOfMemory(
            f"a context of {context} tokens needs {needed} GB of cache: "
            f"{self._has}, and the cache has room for {most} tokens",
            hint=more + shorter,
        )


def max_prefill_items(on_gpu: bool) -> int:
    """Work items of attention that the prompts of a step have at most, so that a step far into a
    long prompt keeps nobody waiting, and scratch stays small. Shorter prompts never get there.
    With 16384 on an H200, a prompt of 50000 tokens takes 16% longer."""
    return 32768 if on_gpu else 4096


def _gb(size: float) -> str:
    return f"{size / GB:.3g} GB"
