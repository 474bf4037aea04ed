"""The command `eventtensor`. The extra eventtensor[llm] installs the packages that it needs."""

from __future__ import annotations

import sys
from importlib import import_module


def main() -> None:
    try:
        app = import_module(".commands", __name__).app
        options, typer = import_module(".options", __name__), import_module("typer")
    except KeyboardInterrupt:
        sys.exit(130)
    except ModuleNotFoundError as e:
        if e.name not in ("typer", "rich"):
            raise
        sys.exit(f"eventtensor needs {e.name}: pip install 'eventtensor[llm]'")
    try:
        with options.user_errors():  # the help and the version are printed outside of all commands
            app()
    except typer.Exit as e:
        sys.exit(e.exit_code)
