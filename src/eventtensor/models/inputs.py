"""What changes with every step, as the kernel takes it: rows, and how their tokens are chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import BadOption
from ..runtime.interface import Interface
from .checkpoint import Array
from .memory import Memory, Shared
from .rows import Change, Choice, Limits, Placed, check_changes
from .sampling import reach, search_steps

_ROWS = ("token", "position", "request", "slot")
_CHOICES = ("temperature", "top_k", "top_p", "reach", "uniform")
_DRAWN = ("sampled", "origin")
_PENALTIES = ("prompt", "repetition", "presence", "frequency")
_CHANGES = ("adjusted", "masked", *_PENALTIES)
_LINE = 64  # bytes: where each input begins
_NONE = -1  # no token


class Sent(NamedTuple):
    """How many rows draw their token, the most steps that one of them takes for it, how many rows
    have their logits changed, and the room for the tokens of each of these."""

    drawn: int
    steps: int
    changed: int
    history: int


class Inputs:
    """One piece, so that one copy takes it to the kernel; what only changes of logits need is sent
    where there are some."""

    def __init__(
        self, known_as: Interface, limits: Limits, memory: Memory, chosen: Array
    ) -> None:
        """`chosen`: where the tokens of a step are."""
        known = {t.name: t.dtype.numpy for t in known_as.tensors}
        self.samples = "sampled" in known
        self._limits, self._memory, self._chosen = limits, memory, chosen
        self._fields, at = dict[str, tuple[int, int, np.dtype[Any]]](), 0
        names = (*_ROWS, *_CHOICES, *_DRAWN, *_CHANGES) if self.samples else _ROWS
        for name in names:
            size = (limits.rows if name in _ROWS else limits.chosen) * known[name].itemsize
            self._fields[name] = (at, size, known[name])
            at += -(-size // _LINE) * _LINE
        self._block: Shared = memory.shared((at,), np.dtype(np.uint8), ahead=True)
        self._here = {n: self._view(self._block.here, n) for n in self._fields}
        if self.samples:
            room = limits.chosen * _room(limits.positions)
            self._history = memory.shared((room,), np.dtype(np.int32))
            wide = -(-limits.vocab // 8)
            self._allowed = memory.shared((limits.chosen, wide), np.dtype(np.uint8))

    def _view(self, block: Array, name: str) -> Array:
        at, size, dtype = self._fields[name]
        return block[at : at + size].view(dtype)

    def there(self, chosen: int, rows: int, sent: Sent) -> dict[str, Any]:
        """The arguments of the kernel."""
        counts = (dict.fromkeys(_ROWS, rows) | dict.fromkeys(_CHOICES, chosen)
                  | dict.fromkeys(_DRAWN, sent.drawn) | dict.fromkeys(_CHANGES, sent.changed))
        found: dict[str, Any] = {n: self._view(self._block.there, n)[: counts[n]]
                                 for n in self._fields}
        if self.samples:
            shape = sent.changed, sent.history
            found["Q"] = sent.steps
            found["history"] = self._history.there[: shape[0] * shape[1]].reshape(shape)
            found["allowed"] = self._allowed.there[: sent.changed]
        return found

    def send(self, placed: Placed, choices: Sequence[Choice]) -> Sent:
        drawn = [k for k, c in enumerate(choices) if c.temperature > 0]
        changes = {k: c.change for k, c in enumerate(choices) if c.change is not None}
        if (drawn or changes) and not self.samples:
            raise BadOption("this runner takes the likeliest token only",
                            hint="make it with sampling=True, or use temperature 0")
        for name in _ROWS:
            values = getattr(placed, name)
            self._here[name][: len(values)] = values
        np.maximum(self._here["token"], 0, out=self._here["token"])
        if drawn:
            self._set_drawn(drawn, choices, list(changes))
        history = self._set_changes(changes) if changes else 1
        self._memory.send(self._block)
        for row, number, count in placed.fed():
            token = self._view(self._block.there, "token")
            self._memory.move(token[row : row + count], self._chosen[number : number + count])
        steps = (search_steps(choices[k].top_k, choices[k].top_p) for k in drawn)
        return Sent(len(drawn), max(steps, default=0), len(changes), history)

    def _set_drawn(
        self, drawn: list[int], choices: Sequence[Choice], changed: list[int]
    ) -> None:
        here, count = self._here, len(choices)
        behind = {k: count + n for n, k in enumerate(changed)}
        here["sampled"][: len(drawn)] = drawn
        here["origin"][: len(drawn)] = [behind.get(k, k) for k in drawn]
        here["reach"][:count] = [reach(c.min_p) for c in choices]
        for name in _CHOICES:
            if name != "reach":
                here[name][:count] = [getattr(c, name) for c in choices]

    def _set_changes(self, changes: dict[int, Change]) -> int:
        """The room for the tokens of each."""
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
        return room


def _room(tokens: int) -> int:
    """In powers of two, so that growing requests rarely need a new launch."""
    return 1 << max(tokens - 1, 0).bit_length()
