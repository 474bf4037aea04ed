"""A file of results that runs measure piece by piece: a run replaces the rows that it measures and
keeps those of other runs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.measure import Bench, Row, print_row, write

# The fields that identify a row; all others are results.
PARAMETERS = (
    "name",
    "engine",
    "model",
    "batch",
    "context",
    "tokens",
    "part",
    "prompt",
    "temperature",
    "top_p",
    "kernel",
    "megabytes",
    "layers",
    "schedule",
)


def key(row: Row) -> tuple[object, ...]:
    return tuple(row.get(p) for p in PARAMETERS)


def merge_rows(before: list[Row], now: list[Row]) -> list[Row]:
    """The old rows, each replaced by the new one with its key; then the other new rows."""
    fresh = {key(row): row for row in now}
    kept = [fresh.pop(key(row), row) for row in before]
    return kept + list(fresh.values())


@dataclass
class MergeBench(Bench):
    """`rows` are those of this run."""

    before: list[Row] = field(default_factory=list)

    @property
    def path(self) -> Path:
        return self.out / f"{self.name}.json"

    def __post_init__(self) -> None:
        self.before = json.loads(self.path.read_text()) if self.path.exists() else []

    def _keep(self, row: Row) -> Row:
        row |= self.context
        self.rows.append(row)
        print_row(row)
        write(self.path, merge_rows(self.before, self.rows))
        return row
