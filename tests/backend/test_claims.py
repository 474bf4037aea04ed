"""Tiles that a loader claims for its worker: every tile once, waits behind a claim, and what a
product of such a tile decides."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import eventtensor as et
from eventtensor.codegen.cuda import generate
from eventtensor.errors import StuckWait
from eventtensor.ir.expr import Const, add
from eventtensor.ir.plan import Plan
from eventtensor.llm.model.packed_layout import plain_rows
from tests.support.emulated import emulated_kernel
from tests.support.handoffs import copy
from tests.support.streams import packed_product, panels_of, panels_shape, plan_of

TILES = 8


def chosen() -> Plan:
    """Which weights a tile takes, a task before says: the loader waits for it behind its claim."""
    p, n = et.Program("chosen"), et.dim("n", min=1, max=128)
    x, y = p.input("x", (n, 512), et.bf16), p.output("y", (TILES, n, 32), et.f32)
    given = p.input("given", (TILES,), et.i32, bound=TILES - 1)
    which = p.scratch("which", (TILES,), et.i32, bound=TILES - 1)
    w = p.weight("w", (TILES, *panels_shape(2, 512)), et.bf16)
    p.call(copy, name="make", grid=(), reads=lambda: given[:], writes=lambda: which[:])
    p.call(packed_product, name="go", grid=(TILES,),
           reads=lambda i: (x[:, :], w[which[i], :, :, :, :, :, :, :]),
           writes=lambda i: y[i, :, :])
    plan = plan_of(p, schedule=(("make", "static"), ("go", "ticket")))
    assert [s.wait_events for s in plan.streams if s.call == "go"] == [("make_done",)]
    return plan


def arrays(n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(n)
    x, w = (rng.standard_normal(shape).astype(et.bf16.numpy)
            for shape in ((n, 512), (TILES, *panels_shape(2, 512))))
    return {"x": x, "w": w, "given": rng.permutation(TILES).astype(np.int32),
            "y": np.full((TILES, n, 32), np.nan, np.float32)}


@pytest.mark.parametrize("workers", (1, 3, TILES + 2))
def test_every_tile_is_taken_once_by_any_number_of_workers(workers: int) -> None:
    with emulated_kernel(chosen(), workers) as kernel:
        for n in (1, 20):
            got = arrays(n)
            kernel.launch({"n": n}, got)
            for tile, of in enumerate(got["given"]):
                rows = plain_rows(got["w"][of].astype(np.float64))
                wanted = got["x"].astype(np.float64) @ rows.T
                np.testing.assert_allclose(got["y"][tile], wanted, rtol=1e-4, atol=1e-3)


def test_a_task_gives_up_though_its_loader_waits_without_a_limit() -> None:
    plan = chosen()
    late = tuple(replace(e, count=add(e.count, Const(1))) for e in plan.events)
    with emulated_kernel(replace(plan, events=late), 2, wait_limit_s=1) as kernel, \
            pytest.raises(StuckWait, match=r"go\(\d\) waits for make_done\[\]"):
        kernel.launch({"n": 20}, arrays(20))


@et.task
def pick(x, w, table, out):
    y = x @ panels_of(w)
    k = et.argmax(y.sum(axis=0))
    out[:] = table[k, :] + y[0, 0]


@pytest.mark.parametrize("gathers, schedule", ((False, "ticket"), (True, "static")))
def test_what_a_product_decides_is_read_behind_it(gathers: bool, schedule: str) -> None:
    p, n = et.Program("named"), et.dim("n", min=1, max=128)
    x, order = p.input("x", (n, 512), et.bf16), p.input("order", (n,), et.i32, bound=n - 1)
    w, table = p.weight("w", panels_shape(16, 512), et.bf16), p.input("table", (32, 8), et.f32)
    out = p.output("out", (TILES, 8), et.f32)
    p.call(pick, name="go", grid=(TILES,),
           reads=lambda i: (x[order[:], :] if gathers else x[:, :],
                            w[2 * i : 2 * i + 2, :, :, :, :, :, :], table[:, :]),
           writes=lambda i: out[i, :])
    plan = plan_of(p, schedule=schedule)
    assert "wide_gemm" in generate(plan).text
    rng = np.random.default_rng(0)
    got = {"x": rng.standard_normal((20, 512)).astype(et.bf16.numpy),
           "w": rng.standard_normal(panels_shape(16, 512)).astype(et.bf16.numpy),
           "order": np.arange(20, dtype=np.int32)[::-1].copy(),
           "table": rng.standard_normal((32, 8)).astype(np.float32),
           "out": np.full((TILES, 8), np.nan, np.float32)}
    with emulated_kernel(plan, 2) as kernel:
        kernel.launch({"n": 20}, got)
    columns = got["x"][got["order"]] if gathers else got["x"]
    y = columns.astype(np.float64) @ plain_rows(got["w"].astype(np.float64)).T
    for tile in range(TILES):
        own = y[:, 32 * tile : 32 * tile + 32]
        wanted = got["table"][own.sum(axis=0).argmax()] + own[0, 0]
        np.testing.assert_allclose(got["out"][tile], wanted, rtol=1e-4, atol=1e-3)
