"""Makes the locks of the clients in tests/clients again, from what each NAME.in and package.json
says: python tools/client_locks.py [NAME ..]. NAME.overrides has what a client can do without."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CLIENTS = Path(__file__).parents[1] / "tests" / "clients"
_COMPILE = ("uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11",
            "--no-annotate", "--no-header")  # fmt: skip
_LOCK = ("npm", "install", "--package-lock-only", "--ignore-scripts", "--no-audit", "--no-fund")


def main(names: list[str]) -> None:
    for folder in sorted(p for p in CLIENTS.iterdir() if not names or p.name in names):
        told, overrides = folder / f"{folder.name}.in", folder / f"{folder.name}.overrides"
        if told.exists():
            more = ("--override", overrides.name) if overrides.exists() else ()
            line = (*_COMPILE, told.name, "-o", told.with_suffix(".txt").name, *more)
        elif (folder / "package.json").exists():
            line = _LOCK
        else:
            continue
        subprocess.run(line, cwd=folder, check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
