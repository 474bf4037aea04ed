"""Packages that only models need. They are imported on first use, so that the compiler itself and
saved artifacts need none of them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..errors import MissingPackage


def need(name: str) -> Any:
    """The module of this name."""
    try:
        return import_module(name)
    except ImportError as e:
        raise MissingPackage(f"{name} cannot be imported: {e}") from e
