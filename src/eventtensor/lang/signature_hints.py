"""Hints with the signature of a function or method that a body calls with other arguments."""

from __future__ import annotations

import inspect
import re

from ..public_names import COMPOSED, FUNCTIONS
from . import composite_functions, tile_functions
from .symbolic_tile import Tile

_CALLEE = re.compile(r"^(Tile\.)?(\w+)\(\) ")


def parameters_hint(complaint: str) -> str | None:
    """From Python's complaint `Tile.sum() got an unexpected ..`: `sum takes (axis=None, ..)`."""
    found = _CALLEE.match(complaint)
    if found is None:
        return None
    name = found[2]
    owner: object = (
        Tile if found[1] else composite_functions if name in COMPOSED else tile_functions
    )
    if owner is tile_functions and name not in FUNCTIONS:
        return None
    signature = inspect.signature(getattr(owner, name))
    plain = [
        p.replace(annotation=p.empty) for p in signature.parameters.values() if p.name != "self"
    ]
    return f"{name} takes {inspect.Signature(plain)}"
