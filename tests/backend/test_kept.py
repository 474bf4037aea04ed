"""Numbers of tiles that workers find in the first iteration of a loop and keep."""

from __future__ import annotations

from typing import Any

import pytest
from backend.test_cuda_emulated import arrays_of, assert_close
from support.backends import run_direct
from support.emulated import emulated_kernel
from support.streams import plan_of

import eventtensor as et
from eventtensor.codegen.cuda.kernel import generate

N = 24


@et.task
def few(x, n):
    n[:] = x.sum(axis=0) % 7 + 2


@et.task
def step(x, y):
    y[:] = x * 2.0 + 1.0


@et.task
def total(x, y):
    y[:] = x.sum(axis=0)


def program(where: str = "before") -> et.Program:
    """Grids of n[0] tiles in a loop; n is made before it, in it, or given."""
    depth = et.dim("depth", max=5)
    p = et.Program("kept")
    seed, x = p.input("seed", (4,), et.i32), p.input("x", (N,), et.f32)
    n = p.input("n", (1,), et.i32, bound=N) if where == "given" else \
        p.scratch("n", (depth if where == "in it" else 1,), et.i32, bound=N)
    h = p.scratch("h", (depth + 1, N), et.f32)
    sums = p.output("sums", (depth,), et.f32)

    def make(at: Any) -> None:
        p.call(few, name="few", grid=(1,), reads=lambda i: seed[:], writes=lambda i: n[at + i])

    if where == "before":
        make(0)
    p.call(step, name="begin", grid=(N,), reads=lambda i: x[i], writes=lambda i: h[0, i])
    with p.loop("l", depth) as at:
        if where == "in it":
            make(at)
        count = n[at] if where == "in it" else n[0]
        p.call(step, name="layer", grid=(count,), reads=lambda i: h[at, i],
               writes=lambda i: h[at + 1, i])
        p.call(total, name="sum", grid=(1,), reads=lambda i: h[at + 1, 0:count],
               writes=lambda i: sums[at + i])
    return p


def grid_of(text: str, call: str) -> str:
    return text[text.index(f"bool grid_{call}(") :].split("\n}\n")[0]


def test_what_is_made_before_the_loop_is_read_in_its_first_iteration() -> None:
    text = generate(plan_of(program())).text
    layer = grid_of(text, "layer")
    first = layer[layer.index("if (l == 0) {") : layer.index("auto tiles")]
    assert "args.cell.few_done" in first and "et::kept()[0] = int64_t(args.n[0]);" in first
    assert "args.n" not in layer[layer.index("auto tiles") :]
    assert "std::max<int64_t>(et::kept()[0], 0)" in layer
    assert "et::kept()[0]" in text[text.index("bool body_sum(") :].split("\n}\n")[0]


def test_what_is_given_is_kept_as_well() -> None:
    layer = grid_of(generate(plan_of(program("given"))).text, "layer")
    assert "if (l == 0) {" in layer and "et::kept()[0] = int64_t(args.n[0]);" in layer


def test_what_an_iteration_makes_is_read_in_it() -> None:
    assert "et::kept()" not in generate(plan_of(program("in it"))).text


def test_debug_builds_keep_nothing() -> None:
    assert "et::kept()" not in generate(plan_of(program()), debug=True).text


@pytest.mark.parametrize("where", ["before", "given", "in it"])
@pytest.mark.parametrize("schedule", ["static", "ticket", "push"])
def test_results_are_those_of_the_interpreter(where: str, schedule: str) -> None:
    plan = plan_of(program(where), schedule=schedule)
    with emulated_kernel(plan, 2) as kernel:
        for seed in range(4):
            dims = {"depth": 1 + seed}
            got = arrays_of(plan, dims, seed)
            got["seed"][:] = range(seed, seed + 4)
            if where == "given":
                got["n"][:] = 3 + seed
            wanted = run_direct(plan.program, dims, got)
            kernel.launch(dims, got)
            assert_close(got, wanted, f"seed {seed}")


def test_calls_in_inner_loops_look_themselves() -> None:
    """The first iteration of the outer loop may have none of the inner one."""
    depth = et.dim("depth", max=5)
    p = et.Program("nested")
    n, x = p.input("n", (1,), et.i32, bound=N), p.input("x", (N,), et.f32)
    some = p.output("some", (depth, depth, N), et.f32, partial=True)
    with p.loop("l", depth) as at, p.loop("m", at) as j:
        p.call(step, name="deep", grid=(n[0],), reads=lambda i: x[i],
               writes=lambda i: some[at, j, i])
    assert "et::kept()" not in generate(plan_of(p)).text


def test_waits_of_the_header_count_by_what_they_guard() -> None:
    """The grid that makes k has n[0] tiles: their number is not kept yet."""

    @et.task
    def odd(x, k):
        k[()] += x % 2

    depth = et.dim("depth", max=5)
    p = et.Program("two")
    seed, x = p.input("seed", (N,), et.i32), p.input("x", (N,), et.f32)
    n, k = (p.scratch(name, (1,), et.i32, bound=N) for name in ("n", "k"))
    out = p.output("out", (depth, N, N), et.f32)
    p.call(few, name="few", grid=(1,), reads=lambda i: seed[:], writes=lambda i: n[i])
    p.call(odd, name="make", grid=(n[0],), reads=lambda i: seed[i], accumulates=lambda i: k[0],
           unordered=True)
    with p.loop("l", depth) as at:
        p.call(step, name="layer", grid=(n[0], k[0]), reads=lambda i, j: x[i],
               writes=lambda i, j: out[at, i, j])
    layer = grid_of(generate(plan_of(p)).text, "layer")
    header = layer[: layer.index("et::kept()[0] =")]
    assert "args.cell.make_done, 0, int64_t(args.n[0])" in header and "kept" not in header
