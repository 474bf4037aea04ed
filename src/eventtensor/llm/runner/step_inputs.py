"""Copies the inputs of a step to the device: tokens, sampling parameters, changed logits, block
tables. batch_arrays.py has checked them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...errors import BadOption
from ...runtime.interface import Interface
from ..array_types import Array
from ..model.sampler import reach, search_steps
from ..model.step_limits import MAX_BIASES
from .batch_arrays import (
    BatchArrays,
    BlockTables,
    LogitsChange,
    RunnerLimits,
    TokenChoice,
    check_changes,
)
from .runner_memory import Memory

_ROWS = ("token", "position", "request", "slot")
_CHOICES = ("temperature", "top_k", "top_p", "reach", "uniform")
_SAMPLED = ("sampled", "origin")
_PENALTIES = ("prompt", "repetition", "presence", "frequency")
_BIASES = ("biased", "bias")
_CHANGES = ("adjusted", "masked", *_PENALTIES, *_BIASES)
_ALIGNMENT = 64  # bytes of each input
_NONE = -1  # no token
_MAX_SINGLE_COPIES = 8  # requests whose pages are copied one by one


class InputShape(NamedTuple):
    """The sizes of the inputs of a step. `drawn`: tokens drawn at random; `steps`: search steps of
    the sampler; `changed`: tokens with changed logits, each with room for `history` and `biases`
    tokens. `is_chained`: the step before samples the tokens, in the same order."""

    drawn: int
    steps: int
    changed: int
    history: int
    biases: int
    is_chained: bool


class StepInputs:
    """The inputs of a step in one block of memory for each buffer, so that one copy suffices.
    Inputs of changed logits are copied only if there are some."""

    def __init__(
        self, interface: Interface, limits: RunnerLimits, memory: Memory, chosen: Sequence[Array]
    ) -> None:
        """`chosen`: the sampled tokens of a step on the device, by its buffer."""
        known = {t.name: t.dtype.numpy for t in interface.tensors}
        self.has_sampling = "sampled" in known
        self._limits, self._memory, self._chosen = limits, memory, chosen
        self._fields, at = dict[str, tuple[int, int, np.dtype[Any]]](), 0
        names = (*_ROWS, *_CHOICES, *_SAMPLED, *_CHANGES) if self.has_sampling else _ROWS
        for name in names:
            size = (limits.rows if name in _ROWS else limits.chosen) * known[name].itemsize
            self._fields[name] = (at, size, known[name])
            at += -(-size // _ALIGNMENT) * _ALIGNMENT
        self._blocks = [memory.shared((at,), np.dtype(np.uint8), is_async=True)
                        for _ in range(memory.num_buffers)]
        self._host = {n: self._view(self._blocks[0].host, n) for n in self._fields}
        if self.has_sampling:
            room = limits.chosen * _room(limits.positions)
            self._history = memory.shared((room,), np.dtype(np.int32))
            wide = -(-limits.vocab // 8)
            self._allowed = memory.shared((limits.chosen, wide), np.dtype(np.uint8))
            self._biases = {n: memory.shared((limits.chosen * (1 + MAX_BIASES),), known[n])
                            for n in _BIASES}

    def _view(self, block: Array, name: str) -> Array:
        at, size, dtype = self._fields[name]
        return block[at : at + size].view(dtype)

    def arguments(
        self, chosen: int, rows: int, sent: InputShape, buffer_index: int
    ) -> dict[str, Any]:
        """The arguments of the kernel."""
        counts = (dict.fromkeys(_ROWS, rows) | dict.fromkeys(_CHOICES, chosen)
                  | dict.fromkeys(_SAMPLED, sent.drawn) | dict.fromkeys(_CHANGES, sent.changed))
        found: dict[str, Any] = {n: self._view(self._blocks[buffer_index].device, n)[: counts[n]]
                                 for n in self._fields}
        if sent.is_chained:
            found["token"] = self._chosen[buffer_index - 1][:rows]
        if self.has_sampling:
            shape = sent.changed, sent.history
            found["Q"] = sent.steps
            found["history"] = self._history.device[: shape[0] * shape[1]].reshape(shape)
            found["allowed"] = self._allowed.device[: sent.changed]
            shape = sent.changed, sent.biases
            for name in _BIASES:
                some = found[name] if sent.biases == 1 else self._biases[name].device
                found[name] = some[: shape[0] * shape[1]].reshape(shape)
        return found

    def send(
        self, batch: BatchArrays, choices: Sequence[TokenChoice], buffer_index: int
    ) -> InputShape:
        """Copies the inputs of a step to its buffer on the device."""
        drawn = [k for k, c in enumerate(choices) if c.temperature > 0]
        changes = {k: c.change for k, c in enumerate(choices) if c.change is not None}
        if (drawn or changes) and not self.has_sampling:
            raise BadOption("this runner takes the likeliest token only",
                            hint="make it with sampling=True, or use temperature 0")
        block = self._blocks[buffer_index]
        self._host = {n: self._view(block.host, n) for n in self._fields}
        for name in _ROWS:
            values = getattr(batch, name)
            self._host[name][: len(values)] = values
        np.maximum(self._host["token"], 0, out=self._host["token"])
        if drawn:
            self._set_drawn(drawn, choices, list(changes))
        history, biases = self._set_changes(changes) if changes else (1, 1)
        self._memory.send(block)
        is_chained = self._chain(batch, buffer_index)
        steps = (search_steps(choices[k].top_k, choices[k].top_p) for k in drawn)
        return InputShape(len(drawn), max(steps, default=0), len(changes), history,
                    biases, is_chained)

    def _chain(self, batch: BatchArrays, buffer_index: int) -> bool:
        """Copies sampled tokens of the step before into this one. Returns True if no copy is
        needed, because the kernel reads them in place."""
        is_chained = batch.chained_tokens()
        if self._memory.num_buffers > 1 and is_chained == [(0, 0, len(batch.token))]:
            return True
        for row, number, count in is_chained:
            token = self._view(self._blocks[buffer_index].device, "token")
            tokens = self._chosen[buffer_index - 1][number : number + count]
            self._memory.copy(token[row : row + count], tokens)
        return False

    def _set_drawn(
        self, drawn: list[int], choices: Sequence[TokenChoice], changed: list[int]
    ) -> None:
        host, count = self._host, len(choices)
        behind = {k: count + n for n, k in enumerate(changed)}
        host["sampled"][: len(drawn)] = drawn
        host["origin"][: len(drawn)] = [behind.get(k, k) for k in drawn]
        host["reach"][:count] = [reach(c.min_p) for c in choices]
        for name in _CHOICES:
            if name != "reach":
                host[name][:count] = [getattr(c, name) for c in choices]

    def _set_changes(self, changes: dict[int, LogitsChange]) -> tuple[int, int]:
        """Fills the inputs of changed logits. Returns the room for the history of each, and for its
        biases."""
        host, every, count = self._host, list(changes.values()), len(changes)
        check_changes(every, self._limits)
        host["adjusted"][:count] = list(changes)
        host["masked"][:count] = [c.allowed is not None for c in every]
        for name in _PENALTIES:
            host[name][:count] = [getattr(c, name) for c in every]
        room = _room(max(len(c.history) for c in every))
        history = self._history.host[: count * room].reshape(count, room)
        history[:] = _NONE
        for k, c in enumerate(every):
            history[k, : len(c.history)] = c.history
            if c.allowed is not None:
                self._allowed.host[k] = c.allowed
        self._memory.send(self._history, count * room)
        if host["masked"][:count].any():
            self._memory.send(self._allowed, count * self._allowed.host.shape[1])
        return room, self._set_biases([c.bias for c in every])

    def _set_biases(self, every: Sequence[Mapping[int, float]]) -> int:
        """The first place of each row belongs to tokens without a bias. If it is the only place, it
        is part of the common block."""
        count, most = len(every), max(map(len, every))
        room = 1 + _room(most) if most else 1
        host = {n: self._host[n] if room == 1 else self._biases[n].host for n in _BIASES}
        biased, bias = (host[n][: count * room].reshape(count, room) for n in _BIASES)
        biased[:], bias[:, 0] = _NONE, 0
        for k, some in enumerate(every):
            biased[k, 1 : 1 + len(some)] = list(some)
            bias[k, 1 : 1 + len(some)] = list(some.values())
        if room > 1:
            for n in _BIASES:
                self._memory.send(self._biases[n], count * room)
        return room


class DeviceBlockTables(BlockTables):
    """Page tables, sent where they have changed since the last step of the same buffer_index: of
    few requests each its pages, of many all between them. So a long context costs a step
    nothing."""

    def __init__(self, limits: RunnerLimits, memory: Memory) -> None:
        self._table = np.zeros(limits.table, np.int32)
        super().__init__(limits, self._table)
        self._memory = memory
        self._shared = [memory.shared(limits.table, np.dtype(np.int32), is_async=True)
                        for _ in range(memory.num_buffers)]
        self._stale: list[set[int]] = [set() for _ in range(memory.num_buffers)]

    def send(self, tables: Sequence[Sequence[int]], buffer_index: int) -> None:
        changed = self.set(tables)
        for stale in self._stale:
            stale.update(changed)
        some = sorted(self._stale[buffer_index])
        if len(some) <= _MAX_SINGLE_COPIES:
            for k in some:
                self._send(k, self.num_pages(k), buffer_index)
        else:
            self._send(some[0], (some[-1] + 1 - some[0]) * self._table[0].size, buffer_index)
        self._stale[buffer_index].clear()

    def _send(self, request: int, count: int, buffer_index: int) -> None:
        """Copies the first `count` entries of a request, and of those behind it."""
        if count:
            shared, first = self._shared[buffer_index], request * self._table[0].size
            sent = slice(first, first + count)
            shared.host.reshape(-1)[sent] = self._table.reshape(-1)[sent]
            self._memory.send(shared, count, first)

    def device_table(self, buffer_index: int) -> Array:
        return self._shared[buffer_index].device


def _room(tokens: int) -> int:
    """Room in powers of two, so that growing requests rarely need a new launch."""
    return 1 << max(tokens - 1, 0).bit_length()
