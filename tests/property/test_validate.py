"""`kernel.validate` refuses data if and only if a debug run on it goes wrong."""

from __future__ import annotations

import numpy as np
import pytest

import eventtensor as et
from eventtensor.errors import DataRefused, EventTensorError

F, I = et.f32, et.i32  # noqa: E741
TASKS, CELLS = 8, 8


@et.task
def copy(x, o):
    o[:] = x


@et.task
def groups(index, o):
    o[:] = index % CELLS


COUNTS = {
    "counts": lambda counts: lambda e: counts[e],
    "one": lambda counts: lambda e: et.min(counts[e], 1),
    "some": lambda counts: lambda e: et.min(counts[e], 3),
    "more": lambda counts: lambda e: counts[e] + 1,
}


def grouped(count: str, computed: bool) -> et.Program:
    """Tasks notify the cell of their group, which is given or computed; sums wait for the cells."""
    p, n = et.Program(f"grouped_{count}"), TASKS
    index, counts = p.input("index", (n,), I), p.input("counts", (CELLS,), I, bound=n)
    group = p.scratch("group", (n,), I, bound=CELLS - 1)
    given = p.input("given", (n,), I, bound=CELLS - 1)
    x, s, o = p.input("x", (n,), F), p.scratch("s", (n,), F), p.output("o", (CELLS,), F)
    made = p.events("made", (n,), count=1)
    ready = p.events("ready", (CELLS,), count=COUNTS[count](counts))
    p.call(groups, grid=(n,), reads=lambda i: index[i], writes=lambda i: group[i],
           notifies=lambda i: made[i])
    which = group if computed else given
    p.call(copy, name="give", grid=(n,), reads=lambda i: x[i], writes=lambda i: s[i],
           waits=lambda i: made[i], notifies=lambda i: ready[which[i]])
    p.call(copy, name="take", grid=(CELLS,), reads=lambda e: x[0], writes=lambda e: o[e],
           waits=lambda e: ready[e])
    return p


def refuses(kernel: et.Kernel, arrays: dict[str, np.ndarray]) -> bool:
    try:
        kernel.validate(**arrays)
    except DataRefused:
        return True
    return False


def goes_wrong(kernel: et.Kernel, arrays: dict[str, np.ndarray]) -> bool:
    try:
        kernel(**arrays)
    except EventTensorError:
        return True
    return False


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("count", COUNTS)
def test_validate_and_a_debug_run_agree(count: str, computed: bool) -> None:
    kernel = et.compile(grouped(count, computed), target="interp", debug=True)
    rng = np.random.default_rng(len(count) + computed)
    seen = set()
    for _ in range(40):
        even = rng.random() < 0.3
        index = rng.permutation(CELLS) if even else rng.integers(0, CELLS, TASKS)
        index = index.astype(np.int32)
        counts = np.bincount(index, minlength=CELLS).astype(np.int32)
        if rng.random() < 0.3:
            counts[rng.integers(CELLS)] += rng.choice([-1, 1])
        if rng.random() < 0.1 and not computed:
            index[rng.integers(TASKS)] = rng.choice([-1, CELLS])
        arrays = {"index": index, "given": index, "counts": counts,
                  "x": np.zeros(TASKS, np.float32), "o": np.zeros(CELLS, np.float32)}
        wrong = refuses(kernel, arrays)
        assert wrong == goes_wrong(kernel, arrays), arrays
        seen.add(wrong)
    assert seen == ({True} if count == "more" else {True, False})
