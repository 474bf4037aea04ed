"""The verifier: one file a check, one forward walk each. A refusal names the node and says why.

What it shows holds relative to contracts: the effects of statements (kernel_ir/effects.py), device
functions, the frame that is still text, and the plan's proof. Values are shown by nothing here.
"""

from __future__ import annotations

from ..statements import Function
from .conflicts import check_conflicts
from .places import check_places
from .uniformity import check_uniformity

CHECKS = (check_uniformity, check_conflicts, check_places)


def verify_function(f: Function) -> None:
    for check in CHECKS:
        check(f)
