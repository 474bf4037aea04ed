"""A refused body stops every build, with the path to the node, its lines and the reason."""

from __future__ import annotations

import pytest

from eventtensor.codegen.cpp import kernel as frame
from eventtensor.codegen.cpp.kernel import Flavour, KernelWriter
from eventtensor.codegen.cuda.kernel import BlockWriter
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.errors import KernelRefused, NotConverged, OutsideMemory, Unordered
from eventtensor.kernel_ir import statements as st
from eventtensor.kernel_ir.verify import CHECKS, verify_function
from eventtensor.kernel_passes.pass_list import PASSES
from eventtensor.targets.devices import DEFAULT_DEVICE
from tests.support.kernels import KERNELS, kernel, without


@pytest.mark.parametrize(
    "flavour",
    [Flavour(), Flavour(debug=True), Flavour(trace=True)],
    ids=["release", "debug", "trace"],
)
def test_a_pass_that_leaves_barriers_out_is_refused_in_every_build(
    flavour: Flavour, monkeypatch: pytest.MonkeyPatch
) -> None:
    def careless(f: st.Function) -> st.Function:
        for step in PASSES:
            f = step(f)
        return without(f, st.Barrier)

    monkeypatch.setattr(frame, "run_passes", careless)
    plan = run_passes(KERNELS["softmax"](), Options("cuda", device="h200")).plan
    assert plan is not None
    with pytest.raises(KernelRefused, match="threads may still"):
        BlockWriter(plan, DEFAULT_DEVICE, flavour).text()


@pytest.mark.parametrize("flavour", [Flavour(), Flavour(debug=True)], ids=["release", "debug"])
def test_bodies_for_threads_are_verified_too(
    flavour: Flavour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame, "run_passes", lambda f: without(f, st.Bind))
    plan = run_passes(KERNELS["softmax"](), Options("cpu")).plan
    assert plan is not None
    with pytest.raises(OutsideMemory, match="nothing has made the view 'x'"):
        KernelWriter(plan, flavour).text()


def test_a_refusal_says_where_and_why() -> None:
    with pytest.raises(KernelRefused) as found:
        verify_function(without(kernel("carried"), st.Barrier))
    text = str(found.value)
    assert " for / " in found.value.path and found.value.path.endswith(" elements")
    assert text.startswith("ET232: body 'go' at ") and "report it" in text


def test_every_check_refuses_by_an_error_of_its_own() -> None:
    assert len(CHECKS) == 3
    for error in (NotConverged, Unordered, OutsideMemory):
        assert issubclass(error, KernelRefused) and error.code != KernelRefused.code
