"""Generated CUDA: one persistent cooperative kernel for a plan; `generate` gives its text and what
the host has to provide. Imported when used: who loads an artifact needs abi.py alone."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .kernel import KERNEL, CudaSource, generate

__all__ = ["KERNEL", "CudaSource", "generate"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".kernel", __name__), name)
