"""What changes with every step, as the kernel takes it: rows, and how their tokens are chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import BadOption
from ..runtime.interface import Interface
from .batch_arrays import (
    MAX_BIASES,
    BatchArrays,
    BlockTables,
    Limits,
    LogitsChange,
    TokenChoice,
    check_changes,
)
from .checkpoint import Array
from .runner_memory import Memory
from .sampler import reach, search_steps

_ROWS = ("token", "position", "request", "slot")
_CHOICES = ("temperature", "top_k", "top_p", "reach", "uniform")
_DRAWN = ("sampled", "origin")
_PENALTIES = ("prompt", "repetition", "presence", "frequency")
_BIASES = ("biased", "bias")
_CHANGES = ("adjusted", "masked", *_PENALTIES, *_BIASES)
_LINE = 64  # bytes: where each input begins
_NONE = -1  # no token
_FEW = 8  # requests whose pages are sent one by one


class InputShape(NamedTuple):
    """How many rows draw their token, the most steps that one of them takes for it, how many rows
    have their logits changed, and for each of these the room for its tokens so far, and for those
    with a bias. `fed`: the rows have the tokens that the step before chooses, in their order."""

    drawn: int
    steps: int
    changed: int
    history: int
    biases: int
    fed: bool


class StepInputs:
    """One piece for each turn, so that one copy takes it to the kernel; what only changes of logits
    need is sent where there are some."""

    def __init__(
        self, known_as: Interface, limits: Limits, memory: Memory, chosen: Sequence[Array]
    ) -> None:
        """`chosen`: where the tokens of a step are, by its turn."""
        known = {t.name: t.dtype.numpy for t in known_as.tensors}
        self.samples = "sampled" in known
        self._limits, self._memory, self._chosen = limits, memory, chosen
        self._fields, at = dict[str, tuple[int, int, np.dtype[Any]]](), 0
        names = (*_ROWS, *_CHOICES, *_DRAWN, *_CHANGES) if self.samples else _ROWS
        for name in names:
            size = (limits.rows if name in _ROWS else limits.chosen) * known[name].itemsize
            self._fields[name] = (at, size, known[name])
            at += -(-size // _LINE) * _LINE
        self._blocks = [memory.shared((at,), np.dtype(np.uint8), ahead=True)
                        for _ in range(memory.turns)]
        self._here = {n: self._view(self._blocks[0].here, n) for n in self._fields}
        if self.samples:
            room = limits.chosen * _room(limits.positions)
            self._history = memory.shared((room,), np.dtype(np.int32))
            wide = -(-limits.vocab // 8)
            self._allowed = memory.shared((limits.chosen, wide), np.dtype(np.uint8))
            self._biases = {n: memory.shared((limits.chosen * (1 + MAX_BIASES),), known[n])
                            for n in _BIASES}

    def _view(self, block: Array, name: str) -> Array:
        at, size, dtype = self._fields[name]
        return block[at : at + size].view(dtype)

    def there(self, chosen: int, rows: int, sent: InputShape, turn: int) -> dict[str, Any]:
        """The arguments of the kernel."""
        counts = (dict.fromkeys(_ROWS, rows) | dict.fromkeys(_CHOICES, chosen)
                  | dict.fromkeys(_DRAWN, sent.drawn) | dict.fromkeys(_CHANGES, sent.changed))
        found: dict[str, Any] = {n: self._view(self._blocks[turn].there, n)[: counts[n]]
                                 for n in self._fields}
        if sent.fed:
            found["token"] = self._chosen[turn - 1][:rows]
        if self.samples:
            shape = sent.changed, sent.history
            found["Q"] = sent.steps
            found["history"] = self._history.there[: shape[0] * shape[1]].reshape(shape)
            found["allowed"] = self._allowed.there[: sent.changed]
            shape = sent.changed, sent.biases
            for name in _BIASES:
                some = found[name] if sent.biases == 1 else self._biases[name].there
                found[name] = some[: shape[0] * shape[1]].reshape(shape)
        return found

    def send(self, placed: BatchArrays, choices: Sequence[TokenChoice], turn: int) -> InputShape:
        drawn = [k for k, c in enumerate(choices) if c.temperature > 0]
        changes = {k: c.change for k, c in enumerate(choices) if c.change is not None}
        if (drawn or changes) and not self.samples:
            raise BadOption("this runner takes the likeliest token only",
                            hint="make it with sampling=True, or use temperature 0")
        block = self._blocks[turn]
        self._here = {n: self._view(block.here, n) for n in self._fields}
        for name in _ROWS:
            values = getattr(placed, name)
            self._here[name][: len(values)] = values
        np.maximum(self._here["token"], 0, out=self._here["token"])
        if drawn:
            self._set_drawn(drawn, choices, list(changes))
        history, biases = self._set_changes(changes) if changes else (1, 1)
        self._memory.send(block)
        fed = self._feed(placed, turn)
        steps = (search_steps(choices[k].top_k, choices[k].top_p) for k in drawn)
        return InputShape(len(drawn), max(steps, default=0), len(changes), history,
                    biases, fed)

    def _feed(self, placed: BatchArrays, turn: int) -> bool:
        """Tokens of the step before are copied to their rows, unless they are read where they
        are."""
        fed = placed.fed()
        if self._memory.turns > 1 and fed == [(0, 0, len(placed.token))]:
            return True
        for row, number, count in fed:
            token = self._view(self._blocks[turn].there, "token")
            tokens = self._chosen[turn - 1][number : number + count]
            self._memory.move(token[row : row + count], tokens)
        return False

    def _set_drawn(
        self, drawn: list[int], choices: Sequence[TokenChoice], changed: list[int]
    ) -> None:
        here, count = self._here, len(choices)
        behind = {k: count + n for n, k in enumerate(changed)}
        here["sampled"][: len(drawn)] = drawn
        here["origin"][: len(drawn)] = [behind.get(k, k) for k in drawn]
        here["reach"][:count] = [reach(c.min_p) for c in choices]
        for name in _CHOICES:
            if name != "reach":
                here[name][:count] = [getattr(c, name) for c in choices]

    def _set_changes(self, changes: dict[int, LogitsChange]) -> tuple[int, int]:
        """The room for the tokens of each, and for its biases."""
        here, every, count = self._here, list(changes.values()), len(changes)
        check_changes(every, self._limits)
        here["adjusted"][:count] = list(changes)
        here["masked"][:count] = [c.allowed is not None for c in every]
        for name in _PENALTIES:
            here[name][:count] = [getattr(c, name) for c in every]
        room = _room(max(len(c.history) for c in every))
        history = self._history.here[: count * room].reshape(count, room)
        history[:] = _NONE
        for k, c in enumerate(every):
            history[k, : len(c.history)] = c.history
            if c.allowed is not None:
                self._allowed.here[k] = c.allowed
        self._memory.send(self._history, count * room)
        if here["masked"][:count].any():
            self._memory.send(self._allowed, count * self._allowed.here.shape[1])
        return room, self._set_biases([c.bias for c in every])

    def _set_biases(self, every: Sequence[Mapping[int, float]]) -> int:
        """The first place of each row is that of the tokens without a bias. If it is the only one,
        it is sent with the rest."""
        count, most = len(every), max(map(len, every))
        room = 1 + _room(most) if most else 1
        here = {n: self._here[n] if room == 1 else self._biases[n].here for n in _BIASES}
        biased, bias = (here[n][: count * room].reshape(count, room) for n in _BIASES)
        biased[:], bias[:, 0] = _NONE, 0
        for k, some in enumerate(every):
            biased[k, 1 : 1 + len(some)] = list(some)
            bias[k, 1 : 1 + len(some)] = list(some.values())
        if room > 1:
            for n in _BIASES:
                self._memory.send(self._biases[n], count * room)
        return room


class DeviceBlockTables(BlockTables):
    """Page tables, sent where they have changed since the last step of the same turn: of few
    requests each its pages, of many all between them. So a long context costs a step nothing."""

    def __init__(self, limits: Limits, memory: Memory) -> None:
        self._table = np.zeros(limits.table, np.int32)
        super().__init__(limits, self._table)
        self._memory = memory
        self._shared = [memory.shared(limits.table, np.dtype(np.int32), ahead=True)
                        for _ in range(memory.turns)]
        self._stale: list[set[int]] = [set() for _ in range(memory.turns)]

    def send(self, tables: Sequence[Sequence[int]], turn: int) -> None:
        changed = self.set(tables)
        for stale in self._stale:
            stale.update(changed)
        some = sorted(self._stale[turn])
        if len(some) <= _FEW:
            for k in some:
                self._send(k, self.length(k), turn)
        else:
            self._send(some[0], (some[-1] + 1 - some[0]) * self._table[0].size, turn)
        self._stale[turn].clear()

    def _send(self, request: int, count: int, turn: int) -> None:
        """So many entries from the first one of the request on."""
        if count:
            shared, first = self._shared[turn], request * self._table[0].size
            sent = slice(first, first + count)
            shared.here.reshape(-1)[sent] = self._table.reshape(-1)[sent]
            self._memory.send(shared, count, first)

    def there(self, turn: int) -> Array:
        return self._shared[turn].there


def _room(tokens: int) -> int:
    """In powers of two, so that growing requests rarely need a new launch."""
    return 1 << max(tokens - 1, 0).bit_length()
