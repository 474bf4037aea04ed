"""Finds a GPU's target by the name of a product or of an architecture, or by what a driver says."""

from __future__ import annotations

from ..errors import BadOption
from . import h200, sm80, sm100, sm120
from .h200 import COSTS, H100, H200
from .sm80 import A100, RTX_3090, RTX_4090
from .sm100 import B200
from .sm120 import RTX_5090
from .target import Capabilities, CudaTarget, Feature

DEFAULT_DEVICE = H200  # for plans and source where there is no GPU

_PRODUCTS = {t.name: t for t in (A100, RTX_3090, RTX_4090, H200, H100, B200, RTX_5090)}
_ARCHITECTURES = {
    t.architecture.rstrip("a"): t for t in (A100, RTX_3090, RTX_4090, H200, B200, RTX_5090)
}
# By the major number of the compute capability.
_FAMILIES: dict[int, frozenset[Feature]] = {
    8: sm80.FEATURES, 9: h200.FEATURES, 10: sm100.FEATURES, 11: sm100.FEATURES, 12: sm120.FEATURES,
}


def find_device(name: str) -> CudaTarget:
    """The target that a user names: `h200`, or `sm_90` (also `sm_90a`) for the usual GPU of an
    architecture."""
    word = name.strip().lower()
    found = _PRODUCTS.get(word) or _ARCHITECTURES.get(word.removesuffix("a"))
    if found is None:
        names = ", ".join((*_PRODUCTS, *_ARCHITECTURES))
        raise BadOption(f"unknown device {name!r}", hint=f"one of {names}")
    return found


def device_target(
    major: int, minor: int, multiprocessors: int, shared_bytes: int
) -> CudaTarget:
    """The target of a real GPU, by its compute capability and sizes. An architecture without a file
    has the features of its family; before Ampere it has none."""
    number = f"sm_{major}{minor}"
    features = _FAMILIES.get(major, frozenset())
    known = _ARCHITECTURES.get(number)
    name = known.name if known is not None else number
    suffix = "a" if major >= 9 else ""  # the architecture's own instructions
    return CudaTarget(
        name, number + suffix, Capabilities(features, multiprocessors, shared_bytes), COSTS
    )
