"""Imports packages that only models need, on first use: the compiler and saved artifacts need none
of them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..errors import MissingPackage


def need(name: str) -> Any:
    """Imports the module of this name; an error names the missing package."""
    try:
        return import_module(name)
    except ImportError as e:
        raise MissingPackage(f"{name} cannot be imported: {e}") from e
