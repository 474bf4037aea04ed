"""The package `tools`, for scripts of this folder: a module that has a path is a package.

`python tools/NAME.py` finds this file, and imports by the names that all others use."""

from pathlib import Path

__path__ = [str(Path(__file__).resolve().parents[1] / "tools")]
