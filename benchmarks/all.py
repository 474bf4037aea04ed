"""Runs every benchmark of the GPU, one after the other; answers 1 if one of them failed.

`--quick` is a smoke run; `--out` is the folder of the JSON files; `--only NAME` may be repeated.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.measure import HERE, RESULTS

SCRIPTS = ("hopper", "chain", "handoffs", "schedules", "launch", "decode", "phases", "moe")
SECONDS = 300


def run(name: str, quick: bool, out: Path) -> bool:
    flags = ["--quick"] if quick and name != "hopper" else []
    command = [sys.executable, str(HERE / f"{name}.py"), "--out", str(out), *flags]
    started = time.perf_counter()
    try:
        status = subprocess.run(command, timeout=SECONDS, check=False).returncode
    except subprocess.TimeoutExpired:
        status = -1
    took = time.perf_counter() - started
    print(f"== {name}: {'right' if status == 0 else f'FAILED ({status})'} in {took:.0f} s\n",
          flush=True)
    return status == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--only", action="append", choices=SCRIPTS)
    args = parser.parse_args()
    failed = [name for name in args.only or SCRIPTS if not run(name, args.quick, args.out)]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
