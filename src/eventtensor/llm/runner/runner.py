"""Runs a model step by step: compiled kernels, and weights and KV cache in the memory of the
target. A step takes tokens and block tables and returns sampled tokens. The engine allocates pages
and schedules requests."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import eventtensor as et

from ...errors import BadOption, BadPacking
from ..array_types import Array, Progress
from ..model.attention_block import SPLIT_TOKENS, page_tokens
from ..model.decoder_tasks import Weights
from ..model.model_config import ModelConfig
from ..model.packed_layout import matrices, packed_shapes
from ..model.rope import rope_tables
from ..model.step_limits import MAX_REQUESTS, MAX_TOKENS
from ..model.tile_sizes import Layout
from .batch_arrays import (
    LogitsChange,
    RunnerLimits,
    StepToken,
    TokenChoice,
    check_choices,
    check_counts,
    is_decode_only,
)
from .model_artifact import KernelSetSpec, compile_kernels, load_kernels, takes_one_row
from .runner_kernels import AnyKernel, KernelShape
from .runner_memory import DeviceMemory, HostMemory, Memory, Wait
from .step_inputs import DeviceBlockTables, InputShape, StepInputs

__all__ = ["LogitsChange", "Result", "Runner", "StepToken", "TokenChoice", "layout_of"]

DTYPES = {"bf16": et.bf16, "f32": et.f32}
MAX_STEPS_IN_FLIGHT = 2  # steps without a fetched result, where launches are asynchronous


class Result(NamedTuple):
    """The sampled tokens and, if requested, their logits."""

    tokens: Array
    logits: Array


class Runner:
    """`weights` are those of `pack_weights`, in host memory or, for target cuda, on the device. The
    cache has `pages` pages for all `requests`. `sampling` allows tokens to be drawn at random. A
    step has up to `rows` tokens; all other sizes are fixed, so a launch is bound once for each
    number of tokens.

    On a GPU single tokens, decode batches and mixed batches have different kernels, whose sums have
    different orders: kernels for many decode tokens have fewer split-K parts, and small steps have
    more items of attention. With `batch_invariant` all steps take the kernel for `rows` tokens,
    with the same parts and items. A sequence then gets the same bits whatever else is in the batch
    and however its prompt is divided. On a CPU that is always so.

    `artifact` is a folder of `eventtensor compile`: nothing is compiled then."""

    def __init__(
        self, config: ModelConfig, weights: Mapping[str, Any], *, target: str, dtype: str = "bf16",
        pages: int, positions: int, requests: int = MAX_REQUESTS, rows: int = MAX_TOKENS,
        sampling: bool = False, batch_invariant: bool = False, progress: Progress | None = None,
        artifact: Path | None = None, **options: Any,
    ) -> None:
        if dtype not in DTYPES:
            raise BadOption(f"unknown dtype {dtype!r}", hint=f"one of {', '.join(DTYPES)}")
        page, layout = page_tokens(config), layout_of(target, dtype, rows, batch_invariant)
        _check_packed(config, layout, weights)
        self.config, self.target, self.page, self.pages = config, target, page, pages
        self.limits = RunnerLimits(
            config.vocab, rows, min(rows, MAX_REQUESTS), requests, positions, pages, page,
            max(1, SPLIT_TOKENS // page),
        )
        on_device = target == "cuda"
        self.memory: Memory = DeviceMemory(options.get("device", 0)) if on_device else HostMemory()
        spec = KernelSetSpec(config, target, dtype, rows, sampling, batch_invariant)
        self.kernels = (compile_kernels(spec, Weights(layout, DTYPES[dtype]), options)
                        if artifact is None else load_kernels(spec, artifact, options))
        self._bound: OrderedDict[tuple[int, ...], Callable[[], Wait]] = OrderedDict()
        self._in_flight: deque[InFlightStep] = deque()
        self._last = self._buffer_index = 0  # of the step before: sampled tokens, and its buffer
        with self._closed_by_errors():
            self._place_arrays(weights, DTYPES[dtype].numpy, progress)
            self._inputs = StepInputs(self.ready(rows).interface, self.limits, self.memory,
                                  self._chosen)

    def _place_arrays(
        self, weights: Mapping[str, Any], dtype: np.dtype[Any], progress: Progress | None
    ) -> None:
        c, limits, memory = self.config, self.limits, self.memory
        packed = {k: v for k, v in weights.items() if k.startswith("w_") or k in ("embed", "head")}
        self.fixed = memory.place_weights(
            {**packed, "gains": _gains(weights), "qk_gains": _qk_gains(c, weights),
             "rope": np.stack(rope_tables(c, limits.positions), axis=1)}, progress)
        of_expert = {n for n, m in matrices(c).items() if m.of == "expert"}
        self._streamed = sum(_bytes(x) for n, x in packed.items() if n not in {"embed", *of_expert})
        self._experts = _ActiveExperts(c, memory, sum(_bytes(packed[n]) for n in of_expert))
        self.fixed |= self._experts.arguments
        self._cache_row = 2 * c.layers * c.kv_heads * c.head_dim * dtype.itemsize
        shape = (c.layers, limits.pages, c.kv_heads, 2, limits.page, c.head_dim)
        self.fixed["kv"] = memory.zeros(shape, dtype)
        self._tables = DeviceBlockTables(limits, memory)
        self._logits = memory.zeros((2 * limits.chosen, c.vocab), np.dtype(np.float32))
        self._chosen = [memory.zeros((limits.chosen,), np.dtype(np.int32))
                        for _ in range(memory.num_buffers)]

    def step(
        self, rows: Sequence[StepToken], tables: Sequence[Sequence[int]], chosen: int = 1,
        choices: Sequence[TokenChoice] = (), logits: int | None = None,
    ) -> Result:
        """Samples a successor for each of the first `chosen` tokens; the others only fill the
        cache. `tables`: the pages of each request. Without `choices` the likeliest tokens are
        taken. `logits`: the number of sampled tokens with logits (None: all). A failed launch
        closes the runner, because the contents of the cache are then unknown."""
        self.launch(rows, tables, chosen, choices)
        return self.result(logits)

    def launch(
        self, rows: Sequence[StepToken], tables: Sequence[Sequence[int]], chosen: int = 1,
        choices: Sequence[TokenChoice] = (),
    ) -> None:
        """Launches a step. On a GPU it runs until `result` waits for it. The next step may be
        launched before, and its tokens may be those that this step samples."""
        check_counts(self.limits, len(rows), chosen)
        choices = choices or (TokenChoice(),) * chosen
        check_choices(choices, chosen)
        is_free = len(self._in_flight) < self.memory.num_buffers
        assert is_free, "fetch a result before the next launch"
        buffer_index = (self._buffer_index + 1) % self.memory.num_buffers
        self._tables.send(tables, buffer_index)
        batch = self._tables.place(rows, self._last)
        step = KernelShape(len(rows), is_decode_only(rows, chosen))
        kernel = self.ready(step.rows, step.decode_only)
        sent = self._inputs.send(batch, choices, buffer_index)
        with self._closed_by_errors():
            wait = self._launch(kernel, step, chosen, batch.work, sent, buffer_index)()
        self._in_flight.append(InFlightStep(wait, self._chosen[buffer_index][:chosen]))
        self._last, self._buffer_index = chosen, buffer_index

    def result(self, logits: int | None = None) -> Result:
        """The result of the oldest step in flight. Its logits last until the next launch."""
        step = self._in_flight[0]
        with self._closed_by_errors():
            step.wait()
            tokens = self.memory.fetch_small(step.chosen)
        self._in_flight.popleft()
        wanted = len(tokens) if logits is None else min(logits, len(tokens))
        assert not (wanted and self._in_flight), "the logits are those of another step"
        return Result(tokens, self.memory.fetch(self._logits[:wanted]))

    def ready(self, rows: int, decode_only: bool = False) -> AnyKernel:
        """The kernel for steps of `rows` tokens. `decode_only`: each token is the newest of
        its own sequence and gets a successor. A thread builds the kernel while others already run;
        a benchmark waits for it here."""
        check_counts(self.limits, rows, 1)
        with self._closed_by_errors():
            return self.kernels.select(KernelShape(rows, decode_only))

    @contextmanager
    def _closed_by_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception:
            self.close()
            raise

    def _launch(
        self, kernel: AnyKernel, step: KernelShape, chosen: int, work: int, sent: InputShape,
        buffer_index: int,
    ) -> Callable[[], Wait]:
        """The launch for steps of these sizes. Room for work items is a power of two, so growing
        requests rarely need a new launch."""
        room, more = 1 << (work - 1).bit_length(), step.rows - chosen
        key = (buffer_index, chosen, more, room, *sent, step.decode_only)
        if key not in self._bound:
            if len(self._bound) == self.memory.max_bound_launches:
                self._bound.popitem(last=False)
            known = {d.name for d in kernel.interface.dims}
            sizes = {name: n for name, n in (("P", more), ("W", room)) if name in known}
            inputs = self._inputs.arguments(chosen, chosen + more, sent, buffer_index)
            self._bound[key] = self.memory.bind_launch(kernel, {
                **self.fixed, **inputs, **sizes,
                "table": self._tables.device_table(buffer_index),
                "logits": self._logits[: chosen + sent.changed],
                "chosen": self._chosen[buffer_index][:chosen],
            })
        self._bound.move_to_end(key)
        return self._bound[key]

    def bytes_read(self, rows: Sequence[StepToken]) -> int:
        """The bytes that a step reads at least: each weight once, the experts that the last step
        has used, and the cache of each token."""
        cache = self._cache_row * sum(r.position + 1 for r in rows)
        return self._streamed + self._experts.bytes_read() + cache

    def close(self) -> None:
        try:
            self.kernels.close()
        finally:
            self.memory.close()


class _ActiveExperts:
    """The number of experts that the last step has used in each layer. `size`: bytes of all
    experts."""

    def __init__(self, config: ModelConfig, memory: Memory, size: int) -> None:
        self._memory, self.arguments = memory, dict[str, Array]()
        if config.experts is not None:
            self._each = size // (config.layers * config.experts.count)
            self.arguments["active"] = memory.zeros((config.layers,), np.dtype(np.int32))

    def bytes_read(self) -> int:
        used = (self._memory.fetch(x) for x in self.arguments.values())
        return sum(self._each * int(x.sum()) for x in used)


class InFlightStep(NamedTuple):
    """A launched step: how to wait for it, and the array of its tokens."""

    wait: Wait
    chosen: Array


def _check_packed(c: ModelConfig, layout: Layout, weights: Mapping[str, Any]) -> None:
    """Checks the layout before anything is compiled; the first step would fail too."""
    for name, shape in packed_shapes(c, layout).items():
        if name in weights and tuple(weights[name].shape) != shape:
            raise BadPacking(f"{name} has the shape {tuple(weights[name].shape)}, not {shape}",
                             hint=f"pack them for {layout!r}, as layout_of says")


def layout_of(
    target: str, dtype: str = "bf16", rows: int = MAX_TOKENS, batch_invariant: bool = False
) -> Layout:
    """The layout of weights for the kernels of a runner."""
    if target != "cuda":
        return "cpu"
    many = dtype == "bf16" and not takes_one_row(target, rows, batch_invariant)
    return "cuda_many" if many else "cuda"


def _bytes(x: Any) -> int:
    """The size of a NumPy array or a torch tensor."""
    return int(x.nbytes)


def _gains(weights: Mapping[str, Any]) -> Array:
    norms = np.asarray(weights["norms"], np.float32)
    last = np.asarray(weights["final_norm"], np.float32)[None]
    return np.concatenate([norms.reshape(-1, norms.shape[-1]), last])


def _qk_gains(config: ModelConfig, weights: Mapping[str, Any]) -> Array:
    if config.qk_norm:
        return np.asarray(weights["qk_norms"], np.float32)
    return np.ones((config.layers, 2, config.head_dim), np.float32)
