"""Prints docs/performance.md from benchmarks/results/*.json: pivot tables and what they say."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """Rows of one name, restricted to `only`, as down x across of medians (p10..p90)."""

    title: str
    file: str
    name: str
    down: tuple[str, ...]
    across: str
    only: tuple[tuple[str, object], ...] = ()
    says: str = ""


TABLES = (
    Table("One hop between SMs, us", "hopper", "hop", ("cap",), "handoff",
          says="`cap` is the number of 16 KB pages in flight an SM while the hop is timed (0: idle "
          "memory). Data that carries its flag costs 16-35% of a counter with release and acquire; "
          "the cap matters more to the counter (2.6 us at 3, 13 us at 12). One lane that watches "
          "first (`flag_watch`) is slower than reading every word at once for 32 values."),
    Table("Stream kept meanwhile, GB/s", "hopper", "hop_stream", ("cap",), "handoff",
          says="Cap 3 keeps 97-98% of the stream, cap 4 all of it."),
    Table("Grid-wide dependency, 132 to 132, us", "hopper", "grid_dependency", ("cap",), "handoff",
          says="All-to-all is where a counter wins: 132 x 16 flag words to poll cost more than one "
          "counter and a plain read, and their spread is wide."),
    Table("L2 reads beside the HBM stream, GB/s (cap 12)", "hopper", "l2_read",
          ("mode", "resident_mb"), "stream_policy", (("cap", 12),)),
    Table("HBM stream beside L2 reads, GB/s (cap 12)", "hopper", "l2_stream",
          ("mode", "resident_mb"), "stream_policy", (("cap", 12),),
          says="Together they share about 8.3 TB/s into the SMs. With 16 MB to keep in L2 the "
          "stream needs the evict_first policy, or both lose a fifth."),
    Table("mma.sync against wgmma: fraction of bit-equal accumulators", "hopper",
          "hmma_equals_hgmma", ("data", "k"), "n",
          says="Equal in every case, ill-conditioned data and subnormals included: a token's "
          "result can be bit-equal across the two paths if K is walked in the same order."),
    Table("A step of 225 MB in a graph of 20, us over one launch without boundaries", "hopper",
          "step_boundary", ("mode",), "unit",
          says="Dependent launch saves 1.9 us of the 3.0 us at a boundary if the loads before "
          "`griddepcontrol.wait` are really issued before it; a cooperative launch takes back "
          "1.4."),
    Table("Hot text: instructions per clock and SM, 16 warps, idle memory", "hopper", "hot_text",
          ("text_kb",), "start", (("warps", 16), ("cap", 0)),
          says="Up to 32 KB 2% is lost; from 64 KB on a quarter if all warps run the same code at "
          "the same time, and half and more if they do not."),
)


def load(file: str) -> list[Row]:
    path = ROOT / "benchmarks" / "results" / f"{file}.json"
    rows: list[Row] = json.loads(path.read_text())
    return rows


def cell(row: Row) -> str:
    middle, low, high = (f"{row[k]:.4g}" for k in ("median", "p10", "p90"))
    return middle if low == high else f"{middle} ({low}..{high})"


def table(t: Table) -> list[str]:
    rows = [r for r in load(t.file) if r["name"] == t.name and all(r[k] == v for k, v in t.only)]
    heads = list(dict.fromkeys(r[t.across] for r in rows))
    keys = list(dict.fromkeys(tuple(r[k] for k in t.down) for r in rows))
    found = {(tuple(r[k] for k in t.down), r[t.across]): cell(r) for r in rows}
    lines = [f"## {t.title}", "", "| " + " | ".join([*t.down, *map(str, heads)]) + " |",
             "|" + "---|" * (len(t.down) + len(heads))]
    for key in keys:
        cells = [found.get((key, h), "") for h in heads]
        lines.append("| " + " | ".join([*map(str, key), *cells]) + " |")
    return [*lines, "", *([t.says, ""] if t.says else [])]


def page() -> str:
    first = load("hopper")[0]
    versions = ", ".join(f"{k} {v}" for k, v in first["versions"].items())
    lines = [
        "# Performance", "",
        "Medians (10th..90th percentile), from `benchmarks/results`; `make performance` makes this "
        "page.", "",
        f"# What the machine allows ({first['gpu']}; {versions})", "",
        "From `benchmarks/hopper.py`: the questions a persistent kernel depends on.", "",
    ]
    for t in TABLES:
        lines += table(t)
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    print(page(), end="")
