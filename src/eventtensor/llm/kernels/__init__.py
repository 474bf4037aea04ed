"""Hand-written kernels of attention and expert routing: headers of custom bodies.

They use what any user has: `et.CudaBody` and `et.CppBody`, and the headers of device/."""

from __future__ import annotations

from pathlib import Path


def header(name: str) -> tuple[Path]:
    """For `headers=` of a custom body."""
    return (Path(__file__).with_name(name),)
