"""What is begun before a task has waited must not read what it waits for."""

from __future__ import annotations

import numpy as np
import pytest

import eventtensor as et
from eventtensor.codegen.cuda import generate
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.ir.plan import Plan
from tests.support.backends import run_direct
from tests.support.emulated import emulated_kernel
from tests.support.handoffs import copy
from tests.support.streams import packed_product, panels_shape

K = 512


def plan_of(program: et.Program, **options: str) -> Plan:
    state = run_passes(program, Options(target="cuda", **options))
    assert state.plan is not None and state.report is not None and state.report.ok
    return state.plan


def body_of(plan: Plan) -> str:
    text = generate(plan).text
    return text[text.index("bool body_go(") :].split("\n}\n")[0]


@et.task
def in_pairs(x, w, out):
    """Rows of both halves, which do not lie side by side, one after the other."""
    n, two, k = x.shape
    panels, _, bundle, halves, _, rows, _ = w.shape
    flat = w.transpose(0, 2, 3, 5, 1, 4, 6).reshape(panels * bundle * halves * rows, k)
    found = x.reshape(n * two, k) @ flat.T
    out[:] = found.reshape(n, two, out.shape[2])


def gathered() -> et.Program:
    n, p = et.dim("n", max=128), et.Program("gathered_k")
    first, w = p.input("first", (n, K), et.bf16), p.weight("w", panels_shape(8, K), et.bf16)
    order = p.input("order", (K,), et.i32, bound=K - 1)
    h, y = p.scratch("h", (n, K), et.bf16), p.output("y", (n, 128), et.f32)
    p.call(copy, name="take", grid=(), reads=lambda: first[:, :], writes=lambda: h[:, :])
    p.call(packed_product, name="go", grid=(2,),
           reads=lambda i: (h[:, order[:]], w[i * 4 : i * 4 + 4, :, :, :, :, :, :]),
           writes=lambda i: y[:, i * 64 : i * 64 + 64])
    return p


def paired() -> et.Program:
    n, p = et.dim("n", max=64), et.Program("paired")
    first, w = p.input("first", (n, 4, K), et.bf16), p.weight("w", panels_shape(8, K), et.bf16)
    h, y = p.scratch("h", (n, 4, K), et.bf16), p.output("y", (2, n, 2, 128), et.f32)
    p.call(copy, name="take", grid=(), reads=lambda: first[:, :, :], writes=lambda: h[:, :, :])
    p.call(in_pairs, name="go", grid=(2, 2),
           reads=lambda i, j: (h[:, j * 2 : j * 2 + 2, :], w[i * 4 : i * 4 + 4, :, :, :, :, :, :]),
           writes=lambda i, j: y[j, :, :, i * 64 : i * 64 + 64])
    return p


@pytest.mark.parametrize("make", [gathered, paired])
def test_x_that_must_be_copied_is_copied_behind_the_wait(make) -> None:
    plan = plan_of(make(), schedule="static")
    body = body_of(plan)
    assert "begin_activation_load_after" not in body and body.index("ev_wait") < body.index(
        "begin_activation_load"
    )
    rng, n = np.random.default_rng(0), 20
    given = {t.name: rng.standard_normal([n if not hasattr(s, "value") else s.value
                                          for s in t.shape]).astype(t.dtype.numpy)
             for t in plan.program.tensors if t.name in ("first", "w")}
    if make is gathered:
        given["order"] = rng.permutation(K).astype(np.int32)
    result = plan.program.tensor("y")
    given["y"] = np.zeros([n if not hasattr(s, "value") else s.value for s in result.shape],
                          np.float32)
    got = {k: v.copy() for k, v in given.items()}
    with emulated_kernel(plan, 3) as kernel:
        kernel.launch({"n": n}, got)
    wanted = run_direct(plan.program, {"n": n}, given)["y"]
    np.testing.assert_allclose(got["y"], wanted, rtol=2e-2, atol=0.2)


@et.task(
    cuda=et.CudaBody(
        """
if (!arrive()) return false;
for (int k = et::thread_rank(); k < 64; k += et::num_threads()) out.data[k] = x.data[k] * s;
return true;
""",
        waits_inside=("x", "s"),
    )
)
def scaled(x, s, out):
    out[:] = x * s


@et.task
def take(x, s, out, scale):
    out[:] = x
    scale[()] = s * 2.0


def test_an_element_that_a_text_takes_by_value_is_loaded_behind_the_wait_for_it() -> None:
    n, p = et.dim("n", max=128), et.Program("by_value")
    a, f = p.input("a", (n, 64), et.f32), p.input("f", (n,), et.f32)
    h, g = p.scratch("h", (n, 64), et.f32), p.scratch("g", (n,), et.f32)
    y = p.output("y", (n, 64), et.f32)
    p.call(take, grid=(n,), reads=lambda i: (a[i, :], f[i]), writes=lambda i: (h[i, :], g[i]))
    p.call(scaled, name="go", grid=(n,), reads=lambda i: (h[n - 1 - i, :], g[n - 1 - i]),
           writes=lambda i: y[i, :])
    body = body_of(plan_of(p, handoff="counter"))
    assert body.index("ev_wait") < body.index("s_value = ")


@et.task
def halve(x, a, b):
    a[:] = x
    b[:] = x * 0.5


SUM = """
if (!arrive()) return false;
for (int k = et::thread_rank(); k < 64; k += et::num_threads()) out.data[k] = x.data[k] + y.data[k];
return true;
"""


def arrival_of(waits_inside: tuple[str, ...], handoff: str) -> tuple[str, str]:
    """What a task does before its custom body, and in the body's `arrive`."""
    @et.task(cuda=et.CudaBody(SUM, waits_inside=waits_inside))
    def add(x, y, out):
        out[:] = x + y

    p = et.Program("arrival")
    first, out = p.input("first", (8, 64), et.f32), p.output("out", (8, 64), et.f32)
    a, b = p.scratch("a", (8, 64), et.f32), p.scratch("b", (8, 64), et.f32)
    p.call(halve, grid=(8,), reads=lambda i: first[i, :], writes=lambda i: (a[i, :], b[i, :]))
    p.call(add, name="go", grid=(8,), reads=lambda i: (a[7 - i, :], b[7 - i, :]),
           writes=lambda i: out[i, :])
    before, arrive = body_of(plan_of(p, handoff=handoff)).split("const auto arrive = ")
    return before, arrive


@pytest.mark.parametrize(("handoff", "wait"), [("counter", "ev_wait"), ("tagged", "read_tagged")])
def test_a_body_waits_by_itself_if_it_declares_all_that_the_wait_guards(
    handoff: str, wait: str
) -> None:
    before, arrive = arrival_of(("x", "y"), handoff)
    assert wait not in before and wait in arrive
    before, arrive = arrival_of(("x",), handoff)
    assert wait in before and wait not in arrive


def test_edges_are_left_out_only_over_what_declared_waits_order_in_any_case() -> None:
    """Who waits for some cells, which run-time data names, says nothing of the others."""
    n, p = et.dim("n", max=64), et.Program("some_cells")
    x = p.input("x", (n, 16), et.f32)
    which = p.input("which", (n,), et.i32, bound=n - 1)
    made, some = p.scratch("made", (n, 16), et.f32), p.scratch("some", (n, 16), et.f32)
    y = p.output("y", (2, n, 16), et.f32)
    ready = p.events("ready", (n,))
    p.call(copy, name="make", grid=(n,), reads=lambda i: x[i, :], writes=lambda i: made[i, :],
           notifies=lambda i: ready[i])
    p.call(copy, name="choose", grid=(n,), reads=lambda j: made[which[j], :],
           writes=lambda j: some[j, :], waits=lambda j: ready[which[j]])
    p.call(both, grid=(), reads=lambda: (made[:, :], some[:, :]), writes=lambda: y[:, :, :])
    assert any(w.event == "make_done" for w in plan_of(p).call("both").waits)


@et.task
def both(a, b, out):
    out[0] = a
    out[1] = b
