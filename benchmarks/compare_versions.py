"""Compares the times of two versions on one GPU: their benchmarks in turns, row by row.

    git archive BASE | tar -x -C base
    python benchmarks/compare_versions.py base . --repeats 3 --out ab.json \\
        --run "decode --only step --only sampled --no-peers" --run "moe --only decode --no-peers"

Each run is a process with the sources and the benchmarks of its version. Versions alternate, so
that a clock that drifts meets both. A row compares the medians of all repeats. The status is 1 if a
row is slower by more than `--limit` percent, is missing in one version, or has failed.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import Row, write
from benchmarks.result_merge import PARAMETERS, key

RUNS = (
    "decode --only step --only sampled --only prefill --no-peers",
    "moe --only decode --no-peers",
    "moe --only chain --no-peers",
)
Key = tuple[object, ...]


@dataclass(frozen=True)
class Comparison:
    """The medians of one row, one for each repeat. A version without the row has none."""

    key: Key
    base: tuple[float, ...]
    head: tuple[float, ...]

    @property
    def percent(self) -> float | None:
        """By how much the head takes longer; None if a version has no such row."""
        if not self.base or not self.head:
            return None
        return 100 * (statistics.median(self.head) / statistics.median(self.base) - 1)

    def is_within(self, limit: float) -> bool:
        """True if both versions have the row and the head is at most `limit` percent slower."""
        return self.percent is not None and self.percent <= limit

    def row(self) -> Row:
        fields = {p: v for p, v in zip(PARAMETERS, self.key, strict=True) if v is not None}
        return {
            **fields,
            "base": self.base,
            "head": self.head,
            "percent": self.percent,
            "base_spread": spread_percent(self.base),
            "head_spread": spread_percent(self.head),
        }


def spread_percent(medians: Sequence[float]) -> float | None:
    """From the least to the largest repeat, in percent of their median."""
    if not medians:
        return None
    return 100 * (max(medians) - min(medians)) / statistics.median(medians)


def measure_once(tree: Path, command: str, seconds: float) -> list[Row]:
    """The rows of one process; a row with an error counts as missing."""
    script, *options = shlex.split(command)
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    with tempfile.TemporaryDirectory() as folder:
        words = [
            sys.executable,
            str(tree / "benchmarks" / f"{script}.py"),
            *options,
            "--out",
            folder,
        ]
        try:
            subprocess.run(words, cwd=tree, env=environment, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            print(f"{tree}: {command} takes longer than {seconds:.0f} s", flush=True)
        found = sorted(Path(folder).glob("*.json"))
        rows = [row for file in found for row in json.loads(file.read_text())]
    return [row for row in rows if "median" in row]


def compare(
    base: Path, head: Path, commands: Iterable[str], repeats: int, seconds: float
) -> list[Comparison]:
    """Which version is first changes with each repeat."""
    medians: dict[Path, dict[Key, list[float]]] = {base: defaultdict(list), head: defaultdict(list)}
    for command in commands:
        for repeat in range(repeats):
            for tree in (base, head) if repeat % 2 == 0 else (head, base):
                for row in measure_once(tree, command, seconds):
                    medians[tree][key(row)].append(row["median"])
    return [
        Comparison(k, tuple(medians[base].get(k, ())), tuple(medians[head].get(k, ())))
        for k in dict.fromkeys([*medians[base], *medians[head]])
    ]


def print_table(found: Iterable[Comparison], limit: float) -> None:
    print(f"{'base':>10} {'head':>10} {'percent':>8} {'spread':>7}  row")
    for c in found:
        words = " ".join(str(v) for v in c.key if v is not None)
        if c.percent is None:
            print(f"{'':37}  {words}: only in the {'head' if c.head else 'base'}")
            continue
        spread = max(spread_percent(c.base) or 0, spread_percent(c.head) or 0)
        mark = "" if c.is_within(limit) else "  SLOWER"
        print(
            f"{statistics.median(c.base):10.4g} {statistics.median(c.head):10.4g} "
            f"{c.percent:+7.2f}% {spread:6.2f}%  {words}{mark}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("base", type=Path, help="folder of the older version")
    add("head", type=Path, help="folder of the newer version")
    add("--run", action="append", help="a benchmark with its options; may be repeated")
    add("--repeats", type=int, default=3)
    add("--limit", type=float, default=1.0, help="percent that a row may be slower")
    add("--seconds", type=float, default=300, help="that one process may take")
    add("--out", type=Path, help="JSON file of the comparison")
    args = parser.parse_args()
    found = compare(
        args.base.resolve(), args.head.resolve(), args.run or RUNS, args.repeats, args.seconds
    )
    print_table(found, args.limit)
    if args.out:
        write(args.out, [c.row() for c in found])
    return 0 if found and all(c.is_within(args.limit) for c in found) else 1


if __name__ == "__main__":
    sys.exit(main())
