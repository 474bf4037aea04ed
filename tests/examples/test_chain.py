"""The chain of matrix-vector products against float64, with one cell a layer."""

from __future__ import annotations

import numpy as np
import pytest

import eventtensor as et
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from examples.chain import chain, chain_arrays, chain_reference, pack


@pytest.mark.parametrize("rows", (16, 32))
def test_the_chain_is_proved_and_has_a_cell_a_layer(rows):
    state = run_passes(chain(rows=rows), Options())
    assert state.report.ok, str(state.report)
    shapes = {e.name: [str(s) for s in e.shape] for e in state.plan.events}
    assert shapes["layer_done"] == ["layers"]


@pytest.mark.parametrize("packed", (False, True))
@pytest.mark.parametrize("target", ("interp", "cpu"))
@pytest.mark.parametrize("schedule", ("static", "ticket", "push"))
def test_the_chain_is_right_at_every_depth(target, schedule, packed):
    kernel = et.compile(chain(64, 16, packed), target=target, schedule=schedule, workers=2)
    for layers in (1, 5, 2):
        v = chain_arrays(layers, np.random.default_rng(layers), 64)
        wanted = chain_reference(v)
        if packed:
            v["w"] = np.ascontiguousarray(pack(v["w"]))
        kernel(**v)
        got = v["last"].astype(np.float64)
        assert np.linalg.norm(got - wanted) <= 1e-2 * np.linalg.norm(wanted)
    kernel.close()
