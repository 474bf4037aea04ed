"""Random programs: the verifier refuses no body that the compiler has made of them."""

from __future__ import annotations

import pytest

from eventtensor.codegen.cpp.kernel import Flavour, KernelWriter
from eventtensor.codegen.cuda.kernel import BlockWriter
from eventtensor.kernel_ir.statements import Function
from eventtensor.targets.devices import DEFAULT_DEVICE
from tests.support.backends import passes
from tests.support.blocks import FAMILIES, seeded

EACH = -(-300 // len(FAMILIES))  # programs of a family


def verified(family: str, seeds: range) -> int:
    """How many bodies of both back ends went through the verifier, debug builds among them."""
    bodies = 0
    for seed in seeds:
        state = passes(seeded(seed, family, small=True).program)
        assert state.plan is not None
        flavour = Flavour(debug=seed % 3 == 0)
        for writer in (
            KernelWriter(state.plan, flavour),
            BlockWriter(state.plan, DEFAULT_DEVICE, flavour),
        ):
            writer.text()
            bodies += sum(isinstance(b.code, Function) for b in writer.bodies.values())
    return bodies


@pytest.mark.core
@pytest.mark.parametrize("family", FAMILIES)
def test_no_body_of_a_right_program_is_refused(family: str) -> None:
    assert verified(family, range(2)) > 0


@pytest.mark.full
@pytest.mark.parametrize("family", FAMILIES)
def test_none_of_three_hundred_programs_is_refused(family: str) -> None:
    assert verified(family, range(2, EACH)) > 0
