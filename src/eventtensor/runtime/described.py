"""What launches need to know of a kernel, as JSON and back: expressions over dims are text."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..errors import BadArtifact
from ..ir.expr import Dim, Node, text
from ..ir.parse_expr import ExprReader, Unreadable
from ..ir.tensor import DType, Role, Tensor
from .interface import CallNames, EventNames, Interface, Placed
from .sizes import Count

FACTS = "kernel.json"
Json = dict[str, Any]
T = TypeVar("T")


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


def facts_of_places(places: Sequence[Placed]) -> list[Json]:
    return [{"tensor": b.tensor, "offset": text(b.offset)} for b in places]


class FactsReader:
    """Of what these functions wrote."""

    def __init__(self, facts: Json) -> None:
        self.facts = facts
        self._dims = {d["name"]: Dim(d["name"], d["min"], d["max"]) for d in facts["dims"]}
        self._reader = ExprReader(self._dims)

    def node(self, key: str) -> Node:
        return self._reader.expr(self.facts[key])

    def places(self, key: str) -> tuple[Placed, ...]:
        return tuple(Placed(b["tensor"], self._reader.expr(b["offset"])) for b in self.facts[key])

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


def read_facts(place: Path, version_key: str, version: object, make: Callable[[Json], T]) -> T:
    """What `make` gives for the facts of a folder; everything that is wrong with them is an
    error."""
    try:
        facts = json.loads(read_file(place, FACTS))
        found = facts[version_key]
    except (ValueError, KeyError, TypeError) as e:
        raise BadArtifact(f"{place / FACTS} is not the facts of a kernel: {e}") from e
    if found != version:
        raise BadArtifact(f"{place} has ABI version {found}, this eventtensor has {version}")
    try:
        return make(facts)
    except (KeyError, TypeError, ValueError, Unreadable) as e:
        raise BadArtifact(f"{place / FACTS} is not whole: {e}") from e


def read_file(place: Path, name: str) -> bytes:
    try:
        return (place / name).read_bytes()
    except OSError as e:
        raise BadArtifact(f"{place / name} cannot be read: {e.strerror}") from e


def _texts(exprs: tuple[Node, ...]) -> list[str]:
    return [text(e) for e in exprs]
