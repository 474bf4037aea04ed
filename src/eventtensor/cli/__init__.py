"""The command `eventtensor`. The packages that it needs come with eventtensor[models]."""

from __future__ import annotations

import sys
from importlib import import_module


def main() -> None:
    try:
        app = import_module(".commands", __name__).app
    except ModuleNotFoundError as e:
        if e.name not in ("typer", "rich"):
            raise
        sys.exit(f"eventtensor needs {e.name}: pip install 'eventtensor[models]'")
    app()
