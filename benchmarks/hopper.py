"""What one Hopper GPU does, measured before the defaults of the CUDA back end are chosen.

Builds each question group in hopper/*.cu with nvcc, runs it, prints a table and writes
results/hopper.json: one row a result, and one row with `error` for a group that failed.
`--only NAME` (repeatable) runs a group alone and keeps the other groups' rows of the file.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from benchmarks.measure import (
    HERE,
    RESULTS,
    Row,
    find_nvcc,
    machine,
    nvcc_version,
    print_heads,
    print_row,
)
from benchmarks.measure import write as write_rows

SOURCES = HERE / "hopper"
GROUPS = ("hop", "grid", "l2", "mma", "pdl", "text")
BUILD_SECONDS = 180
RUN_SECONDS = 30
# The long form: `-arch=sm_90a` also assembles for plain sm_90, which has no wgmma.
FLAGS = ("-std=c++17", "-O3", "-gencode=arch=compute_90a,code=sm_90a")


class GroupError(Exception):
    """A group did not build, did not end in time, or found a wrong result."""

    def __init__(self, reason: str, rows: list[Row] | None = None) -> None:
        super().__init__(reason)
        self.rows = rows or []


def build(nvcc: str, group: str, folder: Path) -> Path:
    target = folder / group
    command = [nvcc, *FLAGS, "-o", str(target), str(SOURCES / f"{group}.cu")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS)
    except subprocess.TimeoutExpired:
        raise GroupError(f"nvcc ran longer than {BUILD_SECONDS} s") from None
    if done.returncode != 0:
        raise GroupError(f"nvcc failed: {done.stderr.strip()[-2000:]}")
    return target


def parse(output: str | bytes | None) -> list[Row]:
    """The complete rows among the lines of a group's output."""
    text = output.decode(errors="replace") if isinstance(output, bytes) else output or ""
    rows = []
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


def run(program: Path) -> list[Row]:
    """The rows of one group; what it printed before a failure travels with the error."""
    try:
        done = subprocess.run([program], capture_output=True, text=True, timeout=RUN_SECONDS)
    except subprocess.TimeoutExpired as late:
        reason = f"ran longer than {RUN_SECONDS} s"
        raise GroupError(reason, parse(late.stdout)) from None
    rows = parse(done.stdout)
    if done.returncode != 0:
        reason = done.stderr.strip()[-2000:] or "no reason given"
        raise GroupError(f"exit status {done.returncode}: {reason}", rows)
    return rows


def measure(group: str, built: Future[Path]) -> list[Row]:
    try:
        return run(built.result())
    except GroupError as failure:
        return [*failure.rows, {"name": group, "error": str(failure)}]
    except OSError as failure:
        return [{"name": group, "error": str(failure)}]


def write(path: Path, rows: list[Row], groups: list[str]) -> None:
    """Replaces the rows of these groups and keeps the others."""
    kept: list[Row] = []
    if path.exists() and len(groups) < len(GROUPS):
        kept = [row for row in json.loads(path.read_text()) if row.get("group") not in groups]
    write_rows(path, sorted(kept + rows, key=lambda row: GROUPS.index(row["group"])))


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure one Hopper GPU.")
    parser.add_argument("--only", action="append", choices=GROUPS, help="run this group alone")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the JSON file")
    args = parser.parse_args()
    chosen, path = args.only, args.out / "hopper.json"
    groups = [group for group in GROUPS if chosen is None or group in chosen]
    nvcc = find_nvcc()
    context = machine(nvcc=nvcc_version(nvcc))
    print(f"{context['gpu']}, {context['versions']}")
    print_heads()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        built = {group: pool.submit(build, nvcc, group, Path(folder)) for group in groups}
        for future in built.values():
            future.exception()  # no compiler runs beside a measurement
        for group in groups:
            for row in measure(group, built[group]):
                print_row(row)
                rows.append({**row, "group": group, **context})
            write(path, rows, groups)  # after each group: a lost machine costs one of them
    return 1 if any("error" in row and row["name"] == row["group"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
