"""Launches plans with planted faults on the device and says how each ended: `ran`, or the name of
the error. After each, the right plan must give the right bits. A child of test_faults.py."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from eventtensor.compiler import State
from eventtensor.config import Options
from eventtensor.errors import EventTensorError
from eventtensor.runtime.cuda.cuda_kernel import CudaKernel
from tests.support.backends import copies, make_arrays, passes, plan_with, run_direct
from tests.support.bases import BASES
from tests.support.mutate import Mutant, mutants

SCHEDULES = ("static", "ticket", "push")
PLANTED = ("drop wait", "count +1", "count -1")


def planted(state: State) -> Iterator[Mutant]:
    """The first mutant of each kind."""
    assert state.derived is not None
    found = list(mutants(state.program, state.derived))
    for kind in PLANTED:
        yield next(m for m in found if kind in m.name)


def main(base: str, schedule: str) -> None:
    state = passes(BASES[base].make(), schedule)
    options = Options(target="cuda", schedule=schedule, handoff="counter")
    dims = BASES[base].dims[-1]
    arrays = make_arrays(state.program, dims)
    wanted = run_direct(state.program, dims, arrays)
    assert state.plan is not None
    right = CudaKernel(state.plan, options)
    for mutant in planted(state):
        kernel = CudaKernel(plan_with(state, mutant.derived), options)
        ended = "ran"
        try:
            kernel.launch(dims, copies(arrays))
        except EventTensorError as error:
            ended = type(error).__name__
        kernel.close()
        got = copies(arrays)
        right.launch(dims, got)
        same = all((got[name] == wanted[name]).all() for name in wanted)
        print(json.dumps({"mutant": mutant.name, "ended": ended, "right_after": same}), flush=True)
    right.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
