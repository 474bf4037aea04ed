"""Loops over wavefronts whose tiles lie askew: proved in few steps, and right."""

from __future__ import annotations

import numpy as np
import pytest

import eventtensor as et
from eventtensor.analysis.deps import dependences
from eventtensor.analysis.edges import MAX_EDGE_PIECES
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.ir.plan import nest_exprs
from eventtensor.ir.walk import free_vars


@et.task
def three(a, b, c, o):
    o[:] = a + 2.0 * b - c


def skewed() -> et.Program:
    """A stencil in time: step t of place x lies on wavefront 2t + x."""
    n, steps = et.dim("n", max=64), et.dim("T", max=64)
    p = et.Program("skewed")
    s = p.state("s", (steps + 1, n + 2), et.f32)
    with p.loop("w", steps * 2 + n - 2) as w:
        first, last = et.max(0, (w - n + 2) // 2), et.min(steps - 1, w // 2)

        def at(k, shift):
            return s[first + k, w - 2 * (first + k) + shift]

        p.call(three, name="step", grid=(et.max(last - first + 1, 0),),
               reads=lambda k: (at(k, 0), at(k, 1), at(k, 2)),
               writes=lambda k: s[first + k + 1, w - 2 * (first + k) + 1])
    return p


def test_an_edge_of_many_pieces_waits_for_whole_iterations():
    program = skewed().build()
    assert max(d.relation.n_basic_map() for d in dependences(program).deps) > MAX_EDGE_PIECES
    state = run_passes(program, Options())
    assert state.report.ok and state.plan is not None
    (event,), (wait,) = state.plan.events, state.plan.call("step").waits
    assert len(event.shape) == 1 and wait.cells
    assert not any("k" in free_vars(*nest_exprs(nest)) for nest in wait.cells)


@pytest.mark.parametrize("target", ["interp", "cpu"])
def test_the_stencil_is_that_of_numpy(target):
    kernel = et.compile(skewed(), target=target)
    for n, steps in ((1, 1), (1, 3), (5, 4), (9, 2)):
        given = np.zeros((steps + 1, n + 2), np.float32)
        given[0] = np.arange(n + 2) % 5
        want = given.copy()
        for t in range(steps):
            want[t + 1, 1:-1] = want[t, :-2] + 2 * want[t, 1:-1] - want[t, 2:]
        kernel(s=given)
        assert np.array_equal(given, want)
