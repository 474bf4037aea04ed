"""The facts of a kernel that launches need, to JSON and back.

Expressions over dims are text. Every error in the facts of an artifact is BadArtifact.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, TypeVar

from ..errors import BadArtifact
from ..ir.expr import Dim, Node, text
from ..ir.parse_expr import ExprReader, Unreadable
from ..ir.tensor import DType, Role, Tensor
from ..ir.walk import evaluate
from .interface import BufferOffset, CallNames, EventNames, Interface
from .overflow_check import Count
from .store import facts_of_data

FACTS = "kernel.json"
MAX_RANK = 1024  # of a task coordinate: far more than a program has loops and axes
Json = dict[str, Any]
T = TypeVar("T")
_BROKEN = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError,
           Unreadable)


def facts_of(known: Interface) -> Json:
    return {
        "program": known.name,
        "dims": [{"name": d.name, "min": d.min, "max": d.max} for d in known.dims],
        "tensors": [
            {"name": t.name, "role": t.role.value, "dtype": t.dtype.value, "shape": _texts(t.shape)}
            for t in known.tensors
        ],
        "events": [{"name": e.name, "shape": _texts(e.shape)} for e in known.events],
        "counts": [{"what": c.what, "value": text(c.value)} for c in known.counts],
        "calls": [{"name": c.name, "vars": list(c.vars), "place": c.place} for c in known.calls],
    }


def facts_of_places(places: Sequence[BufferOffset]) -> list[Json]:
    return [{"tensor": b.tensor, "offset": text(b.offset)} for b in places]


class FactsReader:
    """Reads what these functions wrote. Errors are ValueError, KeyError and the like."""

    def __init__(self, facts: Json) -> None:
        self.facts = facts
        self._dims = {d["name"]: _dim(d) for d in facts["dims"]}
        self._reader = ExprReader(self._dims)

    def integer(self, key: str, most: int) -> int:
        found = self.facts[key]
        if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= most:
            raise ValueError(f"{key} is {found!r}, not an integer of 0 to {most}")
        return found

    def rank(self) -> int:
        """The length of the longest task coordinate, which decides the size of launch records."""
        found = self.integer("rank", MAX_RANK)
        longest = max([1, *(len(c["vars"]) for c in self.facts["calls"])])
        if found != longest:
            raise ValueError(f"rank is {found}, but the longest task coordinate has {longest}")
        return found

    def data(self, place: Path, name: str) -> bytes:
        """The bytes of a saved file, checked by size and digest."""
        found = read_file(place, name)
        if self.facts["files"][name] != facts_of_data(found):
            raise BadArtifact(f"{place / name} is not the file that was saved")
        return found

    def node(self, key: str) -> Node:
        return self._reader.expr(self.facts[key])

    def places(self, key: str) -> tuple[BufferOffset, ...]:
        return tuple(
            BufferOffset(b["tensor"], self._reader.expr(b["offset"])) for b in self.facts[key]
        )

    def interface(self) -> Interface:
        facts = self.facts
        return Interface(
            facts["program"], tuple(self._dims.values()),
            tuple(
                Tensor(t["name"], Role(t["role"]), self._shape(t), DType(t["dtype"]))
                for t in facts["tensors"]
            ),
            tuple(EventNames(e["name"], self._shape(e)) for e in facts["events"]),
            tuple(CallNames(c["name"], tuple(c["vars"]), c["place"]) for c in facts["calls"]),
            tuple(Count(c["what"], self._reader.expr(c["value"])) for c in facts["counts"]),
        )

    def _shape(self, x: Json) -> tuple[Node, ...]:
        return tuple(self._reader.expr(s) for s in x["shape"])


def check_places(known: Interface, held: Sequence[tuple[Node, Sequence[BufferOffset]]]) -> None:
    """Check that each buffer is scratch and lies in its memory, at the smallest dims and larger
    ones."""
    scratch = {t.name: t for t in known.tensors if t.role is Role.scratch}
    for more in (0, 1000):
        dims = {d.name: d.min + more if d.max is None else min(d.min + more, d.max)
                for d in known.dims}
        for size, places in held:
            room = evaluate(size, dims)
            ends = [room, *(evaluate(b.offset, dims) + _bytes(scratch[b.tensor], dims)
                            for b in places)]
            starts = [room, *(evaluate(b.offset, dims) for b in places)]
            if min(starts) < 0 or max(ends) > room:
                raise ValueError(f"buffers lie outside the {room} bytes of their memory")


def _bytes(t: Tensor, dims: Mapping[str, int]) -> int:
    return prod(evaluate(s, dims) for s in t.shape) * t.dtype.size


def _dim(d: Json) -> Dim:
    name, low, high = d["name"], d["min"], d["max"]
    if not (isinstance(name, str) and type(low) is int and (high is None or type(high) is int)):
        raise ValueError(f"a dim is {d}")
    return Dim(name, low, high)


def read_facts(place: Path, version_key: str, version: object, make: Callable[[Json], T]) -> T:
    """The result of `make` for the facts of a folder. Every error in them is BadArtifact."""
    try:
        facts = json.loads(read_file(place, FACTS))
        found = facts[version_key]
    except (ValueError, KeyError, TypeError, RecursionError) as e:
        raise BadArtifact(f"{place / FACTS} is not the facts of a kernel: {e}") from e
    if found != version:
        raise BadArtifact(f"{place} has ABI version {found}, this eventtensor has {version}")
    try:
        return make(facts)
    except _BROKEN as e:
        raise BadArtifact(f"{place / FACTS} is not whole: {e}") from e


def read_file(place: Path, name: str) -> bytes:
    try:
        return (place / name).read_bytes()
    except OSError as e:
        raise BadArtifact(f"{place / name} cannot be read: {e.strerror}") from e


def _texts(exprs: tuple[Node, ...]) -> list[str]:
    return [text(e) for e in exprs]
