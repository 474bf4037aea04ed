"""The target of a model by the name that a user gives."""

from __future__ import annotations

from ...errors import BadOption, NoDevice
from ...runtime.cuda.driver import device


def find_target(name: str, named_device: str | None = None) -> str:
    """The target of a name. `auto` is a GPU if there is one or the user names one."""
    if name not in ("auto", "cuda", "cpu", "interp"):
        raise BadOption(f"unknown target {name!r}", hint="auto, cuda or cpu")
    if name != "auto":
        return name
    if named_device is not None:
        return "cuda"
    try:
        device(0)
    except NoDevice:
        return "cpu"
    return "cuda"
