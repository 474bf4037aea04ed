"""Prints docs/performance.md from benchmarks/results/*.json: pivot tables and what they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, assert_never

from tools.performance_tables import SECTIONS, Listing, Section, Table

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
Row = dict[str, Any]


def load(folder: Path, file: str) -> list[Row]:
    """The rows of a file that has been measured; none if it is not there."""
    path = folder / f"{file}.json"
    return json.loads(path.read_text()) if path.exists() else []


def cell(row: Row, more: str) -> str:
    if "median" not in row:
        return "refused" if "refused" in row else "failed"
    middle, low, high = (f"{row.get(k, row['median']):.4g}" for k in ("median", "p10", "p90"))
    shown = middle if low == high else f"{middle} ({low}..{high})"
    return f"{shown}, {more.format(**row)}" if more else shown


def table(t: Table | Listing, rows: list[Row]) -> list[str]:
    """Nothing, if none of its rows was measured."""
    match t:
        case Table():
            lines = pivot(t, rows)
        case Listing():
            lines = listing(t, rows)
        case _:
            assert_never(t)
    if not lines:
        return []
    return [f"## {t.title}", "", *lines, "", *([t.says, ""] if t.says else [])]


def kept(t: Table | Listing, rows: list[Row]) -> list[Row]:
    return [r for r in rows if r["name"] == t.name and all(r.get(k) == v for k, v in t.only)]


def pivot(t: Table, rows: list[Row]) -> list[str]:
    found = [r for r in kept(t, rows) if t.across in r]
    heads = list(dict.fromkeys(r[t.across] for r in found))
    keys = list(dict.fromkeys(tuple(r[k] for k in t.down) for r in found))
    cells = {(tuple(r[k] for k in t.down), r[t.across]): cell(r, t.more) for r in found}
    lines = [[*key, *(cells.get((key, h), "") for h in heads)] for key in keys]
    return grid([*t.down, *heads], lines)


def listing(t: Listing, rows: list[Row]) -> list[str]:
    """Without columns that no row has."""
    every = [beside(t, row, rows) | {k: shown(k, v) for k, v in row.items()}
             | {"median": cell(row, "")} for row in kept(t, rows)]
    columns = [(head, what) for head, what in t.columns if any(what in known for known in every)]
    lines = [[known.get(what, "") for _, what in columns] for known in every]
    return grid([head for head, _ in columns], lines)


def beside(t: Listing, row: Row, rows: list[Row]) -> dict[str, str]:
    """What other engines took: in the same run, or else in the last one that asked them."""
    found = {
        r["engine"]: r.get("median", "refused") for r in rows
        if r["name"] == t.name and "engine" in r and all(r.get(k) == row.get(k) for k in t.alike)
    }
    return {k: shown(k, v) for k, v in (found | row.get("peers", {})).items()}


def shown(what: str, value: Any) -> str:
    match value:
        case int() if what.endswith("_bytes"):
            return f"{value / 1e6:.1f} MB"
        case float():
            return f"{value:.4g}"
        case str():
            return value.partition(": ")[0]  # "refused: why"
        case _:
            return str(value)


def grid(heads: list[Any], lines: list[list[Any]]) -> list[str]:
    texts = ["| " + " | ".join(map(str, line)) + " |" for line in (heads, *lines)]
    return [texts[0], "|" + "---|" * len(heads), *texts[1:]] if lines else []


def section(s: Section, rows: list[Row]) -> list[str]:
    if not rows:
        return []
    versions = ", ".join(f"{k} {v}" for k, v in rows[0]["versions"].items())
    where = rows[0].get("cpu", rows[0]["gpu"])
    lines = [f"# {s.title} ({where}; {versions})", "", s.intro, ""]
    return lines + [line for t in s.tables for line in table(t, rows)]


def page(folder: Path = RESULTS) -> str:
    lines = [
        "# Performance", "",
        "Medians (10th..90th percentile), from `benchmarks/results`; `make performance` makes this "
        "page.", "",
    ]
    for s in SECTIONS:
        lines += section(s, load(folder, s.file))
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    print(page(), end="")
