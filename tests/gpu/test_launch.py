"""Bound steps on the device: any stream, CUDA graphs, changing dims, dependent launches, and what
happens to a queue of launches when one of them fails."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import eventtensor as et
from eventtensor.config import Options
from eventtensor.errors import CountMismatch, HostArgument, StuckWait
from eventtensor.ir.expr import Const, Var, compare, select
from eventtensor.runtime.cuda.cuda_kernel import CudaKernel
from eventtensor.runtime.cuda.loaded_kernel import LoadedKernel
from tests.backend import conftest as lab
from tests.backend.test_failures import QUICK, with_count

torch = pytest.importorskip("torch")
SCHEDULES = ("static", "ticket", "push")
Arrays = dict[str, np.ndarray]


def on_device(arrays: Arrays) -> dict:
    return {k: torch.from_numpy(v).cuda() for k, v in arrays.items()}


def assert_holds(tensors: dict, wanted: Arrays) -> None:
    lab.assert_same({k: v.cpu().numpy() for k, v in tensors.items()}, wanted)


def mild(arrays: Arrays) -> Arrays:
    """Weights so small that a state stays finite through many launches."""
    return {**arrays, "w": arrays["w"] / 64}


def kernel_for(plan, **options) -> LoadedKernel:
    return LoadedKernel(CudaKernel(plan, Options(target="cuda", **options)))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_step_runs_on_any_stream(schedule: str) -> None:
    plan = lab.make_plan(lab.row_sum(), schedule)
    kernel = kernel_for(plan)
    host = lab.make_arrays(plan, {"n": 777})
    for stream in (None, torch.cuda.Stream(), torch.cuda.current_stream()):
        given = on_device(host)
        torch.cuda.synchronize()
        step = kernel.bind(**given)
        for _ in range(5):
            step(stream)
        kernel.synchronize()
        assert_holds(given, lab.reference(plan, {"n": 777}, host))
    kernel.close()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_captured_step_is_right_at_every_replay(schedule: str) -> None:
    """The input changes before each replay, the state is carried from one to the next."""
    plan = lab.make_plan(lab.carried(), schedule)
    dims = {"n": 100, "layers": 5}
    kernel, host = kernel_for(plan), mild(lab.make_arrays(plan, dims))
    given = on_device(host)
    step = kernel.bind(**given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(torch.cuda.current_stream())
        step(torch.cuda.current_stream())
    hosts = [{**host, "h": lab.make_arrays(plan, dims, seed)["h"]} for seed in range(5)]
    fresh, found = [on_device(h)["h"] for h in hosts], []
    for k in range(50):
        given["h"].copy_(fresh[k * k % 7 % 5])
        graph.replay()
        found.append({name: x.clone() for name, x in given.items()})
    torch.cuda.synchronize()
    kernel.check()
    once = [lab.reference(plan, dims, h) for h in hosts]
    twice = [lab.reference(plan, dims, h) for h in once]
    for k, tensors in enumerate(found):
        assert_holds(tensors, twice[k * k % 7 % 5])
    kernel.close()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_steps_of_different_dims_take_turns(schedule: str) -> None:
    """A larger bind comes after the small one was captured: its memory must not move."""
    plan = lab.make_plan(lab.row_sum(), schedule)
    kernel = kernel_for(plan)
    sizes = (40, 10000, 7, 18000)
    hosts = [lab.make_arrays(plan, {"n": n}, seed=n) for n in sizes]
    given = [on_device(h) for h in hosts]
    first = kernel.bind(**given[0])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        first(torch.cuda.current_stream())
    steps = [first, *(kernel.bind(**g) for g in given[1:])]
    stream = torch.cuda.current_stream()
    for _ in range(6):
        for step in steps:
            step(stream)
        graph.replay()
    kernel.synchronize()
    for n, host, tensors in zip(sizes, hosts, given, strict=True):
        assert_holds(tensors, lab.reference(plan, {"n": n}, host))
    for tensors in given:
        tensors["c"].zero_()
    graph.replay()
    kernel.synchronize()
    assert_holds(given[0], lab.reference(plan, {"n": 40}, hosts[0]))
    kernel.close()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_dependent_launches_follow_each_other(schedule: str) -> None:
    plan = lab.make_plan(lab.carried(), schedule)
    dims = {"n": 300, "layers": 3}
    kernel, host = kernel_for(plan), mild(lab.make_arrays(plan, dims))
    given = on_device(host)
    step, stream = kernel.bind(**given), torch.cuda.Stream()
    torch.cuda.synchronize()
    for _ in range(10):
        step(stream, dependent=True)
    kernel.synchronize()
    print("refused:", kernel.backend.refused or "nothing")
    wanted = host
    for _ in range(10):
        wanted = lab.reference(plan, dims, wanted)
    assert_holds(given, wanted)
    kernel.close()


@et.task
def add_rows_up(x, total):
    total[:] += x.sum(axis=0)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_accumulation_starts_from_zero_at_every_replay(schedule: str) -> None:
    p = et.Program("total")
    x, total = p.input("x", (64, 32), et.f32), p.output("total", (32,), et.f32)
    p.call(add_rows_up, name="add", grid=(16,), reads=lambda i: x[i * 4 : i * 4 + 4, :],
           accumulates=lambda i: total[:])
    plan = lab.make_plan(p, schedule)
    kernel, host = kernel_for(plan), lab.make_arrays(plan, {})
    given = on_device(host)
    step = kernel.bind(**given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(torch.cuda.current_stream())
    for _ in range(50):
        graph.replay()
    kernel.synchronize()
    assert_holds(given, lab.reference(plan, {}, host))
    kernel.close()


# ---- failures ------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ("static", "ticket"))
def test_launches_behind_a_stuck_one_leave_and_the_next_one_works(schedule: str) -> None:
    """From row 2 on the count is one too high; smaller launches never see it."""
    plan = lab.make_plan(lab.row_sum(), schedule)
    broken = with_count(plan, select(compare("<=", 2, Var("c0")), 5, 4))
    kernel = LoadedKernel(CudaKernel(broken, Options(target="cuda"), QUICK))
    host = lab.make_arrays(plan, {"n": 64})
    bad = kernel.bind(**on_device(lab.make_arrays(plan, {"n": 65})))
    given, stream = on_device(host), torch.cuda.Stream()
    good = kernel.bind(**given)
    for _ in range(2):
        given["c"].fill_(-1)
        torch.cuda.synchronize()
        bad(stream)
        for _ in range(20):
            good(stream)
        with pytest.raises(StuckWait, match=r"final\(2\).*expected 5, seen 4.*n = 65"):
            kernel.synchronize()
        assert (given["c"] == -1).all(), "a launch behind the failed one has run"
        kernel.check()
        good(stream)
        kernel.synchronize()
        assert_holds(given, lab.reference(plan, {"n": 64}, host))
    kernel.close()


def test_a_stuck_graph_ends_and_can_be_replayed() -> None:
    plan = lab.make_plan(lab.row_sum(), "push")
    kernel = LoadedKernel(CudaKernel(with_count(plan, Const(5)), Options(target="cuda"), QUICK))
    step = kernel.bind(**on_device(lab.make_arrays(plan, {"n": 33})))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(3):
            step(torch.cuda.current_stream())
    for _ in range(2):
        graph.replay()
        torch.cuda.synchronize()
        with pytest.raises(StuckWait, match="n = 33"):
            kernel.check()
    kernel.close()


def test_debug_finds_over_and_under_notification() -> None:
    plan = lab.make_plan(lab.row_sum())
    kernel = CudaKernel(with_count(plan, Const(3)), Options(target="cuda", debug=True))
    with pytest.raises(CountMismatch, match=r"final\(0\).*ended at 4, but its count is 3"):
        kernel.launch({"n": 3}, lab.make_arrays(plan, {"n": 3}))
    kernel.close()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_random_delays_do_not_change_a_bit(schedule: str) -> None:
    plan = lab.make_plan(lab.carried(), schedule)
    kernel = CudaKernel(plan, Options(target="cuda", debug=True))
    for seed in range(6):
        dims = {"n": 60 + 20 * seed, "layers": 4}
        host = lab.make_arrays(plan, dims, seed)
        mine = {k: v.copy() for k, v in host.items()}
        kernel.launch(dims, mine, delay_seed=seed)
        lab.assert_same(mine, lab.reference(plan, dims, host))
    kernel.close()


# ---- arguments -----------------------------------------------------------------------------


@et.task
def doubled(x, y):
    y[:] = x * 2.0


def test_bf16_tensors_of_torch_are_bound() -> None:
    n, p = et.dim("n", max=64), et.Program("halves")
    x, y = p.input("x", (n, 8), et.bf16), p.output("y", (n, 8), et.bf16)
    p.call(doubled, name="go", grid=(n,), reads=lambda i: x[i, :], writes=lambda i: y[i, :])
    kernel = et.compile(p, target="cuda")
    given = torch.randn(33, 8, device="cuda").bfloat16()
    found = torch.empty_like(given)
    step = kernel.bind(x=given, y=found)
    step(torch.cuda.current_stream())
    kernel.synchronize()
    assert torch.equal(found, given * 2)
    with pytest.raises(HostArgument):
        kernel.bind(x=given, y=found.cpu())
    kernel.close()


def test_a_short_limit_is_kept() -> None:
    """The limit of a wait is a parameter of the launch, not of the code."""
    plan = with_count(lab.make_plan(lab.row_sum()), Const(5))
    first = CudaKernel(plan, Options(target="cuda"), replace(QUICK, wait_limit_s=0.05))
    second = CudaKernel(plan, Options(target="cuda"), replace(QUICK, wait_limit_s=0.4))
    assert second.from_cache
    for kernel in (first, second):
        with pytest.raises(StuckWait):
            kernel.launch({"n": 33}, lab.make_arrays(plan, {"n": 33}))
        kernel.close()
