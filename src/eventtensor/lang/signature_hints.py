"""What a function or method of tiles takes, where a body gives it something else."""

from __future__ import annotations

import inspect
import re

from .symbolic_tile import Tile

_CALLED = re.compile(r"^(Tile\.)?(\w+)\(\) ")


def parameters_hint(complaint: str) -> str | None:
    """From Python's complaint `Tile.sum() got an unexpected ..`: `sum takes (axis=None, ..)`."""
    found = _CALLED.match(complaint)
    if found is None:
        return None
    import eventtensor as et

    owner, name = (Tile if found[1] else et), found[2]
    if owner is et and name not in et.__all__:
        return None
    signature = inspect.signature(getattr(owner, name))
    plain = [
        p.replace(annotation=p.empty) for p in signature.parameters.values() if p.name != "self"
    ]
    return f"{name} takes {inspect.Signature(plain)}"
