"""Programs that several threads compile at the same time: proofs go one after the other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from time import sleep

import eventtensor as et
from eventtensor import compiler
from eventtensor.config import Options


@et.task
def double(x, y):
    y[:] = x * 2.0


def program() -> et.Program:
    p, n = et.Program("threads"), et.dim("n", max=8)
    x, y = p.input("x", (n,), et.f32), p.output("y", (n,), et.f32)
    p.call(double, grid=(n,), reads=lambda i: x[i], writes=lambda i: y[i])
    return p


def test_one_thread_at_a_time_proves(monkeypatch) -> None:
    inside, most = 0, 0

    def watch(state: compiler.State) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        sleep(0.01)
        inside -= 1

    monkeypatch.setattr(compiler, "PASSES", (*compiler.PASSES, ("watch", watch)))
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: compiler.run_passes(program(), Options()), range(8)))
    assert most == 1 and all(state.plan is not None for state in done)
