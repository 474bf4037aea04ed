"""Generated CUDA without a GPU: every kind of program runs in the emulator (tests/emulator), on the
real run time, in orders that seeds decide."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import eventtensor as et
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.errors import StuckWait
from eventtensor.ir.expr import Const, add, compare, mul
from eventtensor.ir.plan import HandoffKind, Plan
from eventtensor.ir.tensor import Role
from eventtensor.ir.walk import evaluate
from examples.chain import chain, chain_arrays, chain_reference, pack
from tests.backend.conftest import carried, row_sum
from tests.gpu.arrays import EXAMPLES, all_bits, assert_near, case
from tests.support.backends import copies, run_direct
from tests.support.bases import chunks
from tests.support.emulated import emulated_kernel
from tests.support.handoffs import broadcast, halo, halves, layers, matrix, pair, two_ways
from tests.support.streams import PROGRAMS

Arrays = dict[str, np.ndarray]
Dims = dict[str, int]
SEEDS = (0, 1)
SIZES = (9, 1, 17)
# name: (program, hand-offs that are legal under some schedule, dims of some launches)
HANDOFFS: dict[str, tuple[Callable[[], et.Program], tuple[str, ...], list[Dims]]] = {
    "pair": (pair, ("same_worker", "tagged", "bulk"), [{"n": 3}, {"n": 1}, {"n": 5}]),
    "pair_16": (lambda: pair(8, 16), ("tagged", "bulk"), [{"n": 3}, {"n": 2}]),
    "pair_u8": (lambda: pair(dtype=et.u8), ("tagged",), [{"n": 3}, {"n": 4}]),
    "pair_bf16": (lambda: pair(dtype=et.bf16), ("tagged", "bulk"), [{"n": 3}, {"n": 4}]),
    "broadcast": (broadcast, ("tagged", "bulk"), [{}, {}]),
    "halo": (halo, ("tagged",), [{"n": 7}, {"n": 12}]),
    "halves": (halves, ("tagged",), [{}, {}]),
    "layers": (
        lambda: layers(True),
        ("same_worker", "tagged", "bulk"),
        [{"depth": 5}, {"depth": 2}],
    ),
    "matrix": (matrix, ("tagged", "bulk"), [{"n": 3}, {"n": 1}]),
    "matrix_odd": (lambda: matrix(3, 5), ("tagged",), [{"n": 4}, {"n": 2}]),
    "two_ways": (two_ways, ("same_worker", "tagged"), [{}, {}]),
    "carried": (carried, ("same_worker", "bulk"), [{"n": 20, "layers": 3}, {"n": 9, "layers": 2}]),
}


def plan_of(program: et.Program, **options: object) -> Plan:
    state = run_passes(program, Options(target="cuda", **options))
    assert state.plan is not None and state.report is not None and state.report.ok
    return state.plan


def arrays_of(plan: Plan, dims: Dims, seed: int = 0) -> Arrays:
    """Random numbers; outputs begin as NaN, or as what no program here gives."""
    rng, out = np.random.default_rng(seed), {}
    for t in plan.program.tensors:
        shape = tuple(evaluate(s, dims) for s in t.shape)
        if t.role is Role.output:
            out[t.name] = np.full(shape, np.nan if t.dtype.is_float else 77, t.dtype.numpy)
        elif t.role is not Role.scratch:
            most = 59 if t.bound is None else evaluate(t.bound[1], dims)
            drawn = rng.standard_normal(shape) / 4 if t.dtype.is_float \
                else rng.integers(0, most + 1, shape)
            out[t.name] = drawn.astype(t.dtype.numpy)
    return out


def launched(plan: Plan, launches: list[Dims], seed: int, workers: int = 3) -> list[Arrays]:
    """What launches of one kernel give, one after the other."""
    found = []
    with emulated_kernel(plan, workers, seed) as kernel:
        for k, dims in enumerate(launches):
            got = arrays_of(plan, dims, k)
            kernel.launch(dims, got)
            found.append(got)
    return found


def wanted_of(plan: Plan, launches: list[Dims]) -> list[Arrays]:
    return [run_direct(plan.program, d, arrays_of(plan, d, k)) for k, d in enumerate(launches)]


def assert_close(got: Arrays, wanted: Arrays, where: str) -> None:
    """Within what a product of 16-bit operands may be off, rounded to bf16 on the way."""
    for name, x in wanted.items():
        a, b = got[name].astype(np.float64), x.astype(np.float64)
        assert np.isfinite(a).all(), f"{name}: {where}"
        error = np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30)
        assert error <= 4e-3, f"{name} is off by {error:.1e} of its norm: {where}"


def assert_same(got: Arrays, wanted: Arrays, where: str) -> None:
    for name, x in wanted.items():
        np.testing.assert_array_equal(got[name], x, err_msg=f"{name}: {where}")


# ---- examples --------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ("static", "ticket", "push"))
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_gives_what_program_order_does(name: str, schedule: str) -> None:
    plan = plan_of(EXAMPLES[name].make(), schedule=schedule)
    for seed in SEEDS:
        with emulated_kernel(plan, 2 + seed, seed) as kernel:
            for n in SIZES:
                dims, arrays, wanted = case(name, n)
                got = copies(arrays)
                kernel.launch(dims, got)
                assert_near(name, got, wanted, f"seed {seed}, n = {n}")


@pytest.mark.parametrize("schedule", ("static", "ticket"))
def test_packed_weights_of_a_chain_give_what_plain_ones_do(schedule: str) -> None:
    """Their K is taken in another order: the bits may differ, but not from run to run."""
    given = chain_arrays(3, np.random.default_rng(0))
    wanted = chain_reference(given)
    for packed in (False, True):
        seen = set()
        plan = plan_of(chain(256, 16, packed), schedule=schedule)
        mine = {**given, "w": np.ascontiguousarray(pack(given["w"]))} if packed else given
        for seed in SEEDS:
            with emulated_kernel(plan, seed=seed) as kernel:
                got = copies(mine)
                kernel.launch({"layers": 3}, got)
                seen.add(got["last"].tobytes())
            off = np.linalg.norm(got["last"].astype(np.float64) - wanted)
            assert off <= 1e-2 * np.linalg.norm(wanted)
        assert len(seen) == 1


# ---- the stream ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROGRAMS)
def test_streamed_operands_give_the_bits_of_those_in_place(name: str) -> None:
    make, launches = PROGRAMS[name]
    plan = plan_of(make(), schedule="static")
    assert plan.streams
    wanted = wanted_of(plan, launches)
    seen = set()
    for chosen in (plan, plan_of(make(), schedule="ticket"),
                   plan_of(make(), schedule="static", stream=False)):
        for seed in SEEDS:
            found = launched(chosen, launches, seed)
            for k, (got, right) in enumerate(zip(found, wanted, strict=True)):
                assert_close(got, right, f"seed {seed}, launch {k}, {launches[k]}")
            seen.add(b"".join(map(all_bits, found)))
    assert len(seen) == 1


# ---- hand-offs -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, handoff", [(n, h) for n, (_, kinds, _) in HANDOFFS.items() for h in kinds])
def test_a_hand_off_gives_what_program_order_does(name: str, handoff: str) -> None:
    make, _, launches = HANDOFFS[name]
    schedule = "static:affine" if handoff == "same_worker" else "static"
    plan = plan_of(make(), schedule=schedule, handoff=handoff)
    assert any(h.kind is HandoffKind(handoff) for h in plan.handoffs)
    wanted = wanted_of(plan, launches)
    for seed in SEEDS:
        for k, got in enumerate(launched(plan, launches, seed)):
            assert_same(got, wanted[k], f"seed {seed}, launch {k}, {launches[k]}")


# ---- failures and debug ----------------------------------------------------------------------


def without_the_last_tile(plan: Plan) -> Plan:
    """From n = 5 on the first grid lacks its last tile: the proof has been made before."""
    first, *rest = plan.program.body
    axis, n = first.grid[0], plan.program.dims[0]
    short = replace(axis, extent=add(axis.extent, mul(Const(-1), compare("<=", 5, n))))
    body = (replace(first, grid=(short,)), *rest)
    return replace(plan, program=replace(plan.program, body=body))


@pytest.mark.parametrize("handoff", ("counter", "tagged"))
def test_a_stuck_wait_is_reported_and_the_next_launch_works(handoff: str) -> None:
    plan = plan_of(pair(), schedule="static", handoff=handoff)
    with emulated_kernel(without_the_last_tile(plan), wait_limit_s=0.3) as kernel:
        for _ in range(2):
            with pytest.raises(StuckWait, match=r"use\(9\) waits for"):
                kernel.launch({"n": 5}, arrays_of(plan, {"n": 5}))
            got = arrays_of(plan, {"n": 4})
            kernel.launch({"n": 4}, got)
            assert_same(got, run_direct(plan.program, {"n": 4}, arrays_of(plan, {"n": 4})), "n = 4")


@pytest.mark.parametrize("dtype", (et.f32, et.bf16))
def test_when_the_epochs_begin_anew_no_word_carries_one(dtype: et.DType) -> None:
    plan = plan_of(pair(dtype=dtype), schedule="static", handoff="tagged")
    last, size = 0xFFFE, evaluate(plan.word_bytes, {"n": 5})
    with emulated_kernel(plan) as kernel:
        memory = kernel._memory
        epoch = ctypes.c_int64.from_address(memory.control.address)
        for n, before, after in ((5, 0, 1), (1, last - 1, 0), (5, 0, 1)):
            epoch.value = before
            got = arrays_of(plan, {"n": n}, n)
            kernel.launch({"n": n}, got)
            wanted = run_direct(plan.program, {"n": n}, arrays_of(plan, {"n": n}, n))
            assert_same(got, wanted, f"epoch {before + 1}")
            words = ctypes.string_at(memory.words.reserve(size).address, size)
            assert epoch.value == after and any(words) == (after > 0)


def test_a_wait_inside_a_body_gets_stuck_like_any_other() -> None:
    plan = plan_of(chunks(), schedule="static")
    part_done, *others = plan.events
    high = replace(plan, events=(replace(part_done, count=Const(2)), *others))
    stuck = pytest.raises(StuckWait, match=r"part_done\[0\], expected 2, seen 1")
    with emulated_kernel(high, wait_limit_s=0.3) as kernel, stuck:
        kernel.launch({"n": 8}, arrays_of(plan, {"n": 8}))


def test_debug_builds_and_delays_change_nothing() -> None:
    make, launches = PROGRAMS["layers"]
    streamed = plan_of(make(), schedule="ticket")
    exact = plan_of(row_sum(), schedule="static")
    for plan, dims in ((streamed, launches[-1]), (exact, {"n": 70})):
        wanted = run_direct(plan.program, dims, arrays_of(plan, dims))
        with emulated_kernel(plan, debug=True) as kernel:
            for seed in (0, 1, 2):
                got = arrays_of(plan, dims)
                kernel.launch(dims, got, delay_seed=seed)
                assert_close(got, wanted, f"seed {seed}")
