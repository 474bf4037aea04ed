"""Prints docs/performance.md from benchmarks/results/*.json: pivot tables and what they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from performance_tables import SECTIONS, Section, Table

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
Row = dict[str, Any]


def load(folder: Path, file: str) -> list[Row]:
    """The rows of a file that has been measured; none if it is not there."""
    path = folder / f"{file}.json"
    return json.loads(path.read_text()) if path.exists() else []


def cell(row: Row, more: str) -> str:
    if "median" not in row:
        return "refused" if "refused" in row else "failed"
    middle, low, high = (f"{row[k]:.4g}" for k in ("median", "p10", "p90"))
    shown = middle if low == high else f"{middle} ({low}..{high})"
    return f"{shown}, {more.format(**row)}" if more else shown


def table(t: Table, rows: list[Row]) -> list[str]:
    kept = [r for r in rows if r["name"] == t.name and t.across in r
            and all(r[k] == v for k, v in t.only)]
    if not kept:
        return []
    heads = list(dict.fromkeys(r[t.across] for r in kept))
    keys = list(dict.fromkeys(tuple(r[k] for k in t.down) for r in kept))
    found = {(tuple(r[k] for k in t.down), r[t.across]): cell(r, t.more) for r in kept}
    lines = [f"## {t.title}", "", "| " + " | ".join([*t.down, *map(str, heads)]) + " |",
             "|" + "---|" * (len(t.down) + len(heads))]
    for key in keys:
        cells = [found.get((key, h), "") for h in heads]
        lines.append("| " + " | ".join([*map(str, key), *cells]) + " |")
    return [*lines, "", *([t.says, ""] if t.says else [])]


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
