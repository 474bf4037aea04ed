"""Makes the locks of the clients in tests/clients again, from what each NAME.in and package.json
says: python tools/client_locks.py [NAME ..]."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CLIENTS = Path(__file__).parents[1] / "tests" / "clients"
_COMPILE = (
    "uv",
    "pip",
    "compile",
    "--quiet",
    "--universal",
    "--python-version",
    "3.11",
    "--no-annotate",
    "--no-header",
)
_LOCK = ("npm", "install", "--package-lock-only", "--ignore-scripts", "--no-audit", "--no-fund")


def main(names: list[str]) -> None:
    for folder in sorted(p for p in CLIENTS.iterdir() if not names or p.name in names):
        if (folder / f"{folder.name}.in").exists():
            subprocess.run(
                [*_COMPILE, f"{folder.name}.in", "-o", f"{folder.name}.txt"], cwd=folder, check=True
            )
        elif (folder / "package.json").exists():
            subprocess.run(_LOCK, cwd=folder, check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
