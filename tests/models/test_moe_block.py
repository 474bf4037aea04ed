"""The MoE sublayer: every routing gives the right result and uses no other expert, a slow expert
delays no other, and the program is proved for every number of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

import eventtensor as et
from eventtensor.codegen.cuda.kernel import generate
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.interp import Order, Task, run
from eventtensor.ir.availability import DataAvailability
from eventtensor.ir.plan import HandoffKind, Plan
from eventtensor.llm.model.decoder_tasks import Weights
from eventtensor.llm.model.llama import llama
from eventtensor.llm.model.model_presets import PRESETS
from eventtensor.runtime.cpu_kernel import CpuKernel, HoldBack
from tests.models.moe_block_program import (
    COUNT,
    HIDDEN,
    LAYERS,
    TOP,
    Arrays,
    Drawn,
    arguments,
    config,
    dims,
    moe_block_program,
    reference,
    rows_for,
    unit_router,
)
from tests.support.emulated import emulated_kernel

RNG = np.random.default_rng(7)
SOME = [list(RNG.permutation(COUNT)[:TOP]) for _ in range(128)]
EVEN = [[(t + e) % COUNT // 2 * 2 for e in (0, 2, 4, 8)] for t in range(48)]
SKEWS: dict[str, list[list[int]]] = {
    "all to the same experts": [[9, 2, 5, 11]] * 17,
    "an expert with all tokens, each with others": [[6, *(e for e in x if e != 6)][:TOP]
                                                    for x in SOME[:33]],
    "half of the experts have no token": EVEN,
    "all scores equal": [[]] * 9,
    "two are better, the others equal": [[13, 7]] * 5,
    "one token": [[15, 0, 14, 3]],
    "many of a prompt": SOME,
}


@pytest.fixture(scope="module", params=("static", "ticket", "push"))
def kernel(request: pytest.FixtureRequest) -> Iterator[CpuKernel]:
    state = run_passes(moe_block_program(config()), Options(schedule=request.param))
    assert state.plan is not None and state.report is not None and state.report.ok
    made = CpuKernel(state.plan, Options(workers=64, debug=True, trace=True))
    yield made
    made.close()


def run_on(kernel: CpuKernel, drawn: Drawn, rows: np.ndarray, **options: object) -> Arrays:
    arrays = arguments(drawn, rows)
    kernel.launch(dims(len(rows)), arrays, **options)
    return arrays


def check(drawn: Drawn, rows: np.ndarray, got: Arrays) -> list[list[set[int]]]:
    wanted, used = reference(drawn, rows)
    np.testing.assert_allclose(got["result"], wanted, rtol=2e-5, atol=2e-5)
    assert got["active"].tolist() == [len(set.union(*layer)) for layer in used]
    return used


@pytest.mark.parametrize("skew", SKEWS)
def test_every_routing_is_right(kernel: CpuKernel, skew: str) -> None:
    drawn, rows = Drawn(config(), unit_router()), rows_for(SKEWS[skew])
    used = check(drawn, rows, run_on(kernel, drawn, rows))
    for chosen, found in zip(SKEWS[skew], used[0], strict=True):
        rest = [e for e in range(COUNT) if e not in chosen]
        assert found == {*chosen, *rest[: TOP - len(chosen)]}


def test_every_number_of_rows_is_right(kernel: CpuKernel) -> None:
    router = np.random.default_rng(3).standard_normal((COUNT, HIDDEN)) * 0.2
    drawn = Drawn(config(), router.astype(np.float32))
    for rows in (*range(1, 18), 64, 65, 128):
        given = np.random.default_rng(rows).standard_normal((rows, HIDDEN))
        check(drawn, given, run_on(kernel, drawn, given))


def test_shares_may_be_those_among_all_experts() -> None:
    c = config(normed=False, layers=1)
    drawn, rows = Drawn(c, unit_router()), rows_for(SOME[:3])
    arrays = arguments(drawn, rows)
    kernel = et.compile(moe_block_program(c), target="interp", debug=True)
    kernel(**arrays, **dims(len(rows)))
    check(drawn, rows, arrays)


def test_a_token_gives_the_same_bits_whoever_is_beside_it(kernel: CpuKernel) -> None:
    drawn, rows = Drawn(config(), unit_router()), rows_for(SOME[:64])
    together = run_on(kernel, drawn, rows)["result"]
    for t in (0, 5, 63):
        alone = run_on(kernel, drawn, rows[t : t + 1])["result"]
        assert alone.tobytes() == together[t : t + 1].tobytes()


@pytest.mark.parametrize("normed", [True, False])
def test_a_kernel_for_one_row_gives_what_it_should(normed: bool) -> None:
    c = config(normed, layers=1)
    kernel = et.compile(moe_block_program(c, tokens=1), target="interp", debug=True)
    for chosen in ([15, 0, 14, 3], [], [7]):
        drawn, rows = Drawn(c, unit_router()), rows_for([chosen])
        arrays = arguments(drawn, rows)
        kernel(**arrays)
        check(drawn, rows, arrays)


# ---- order -----------------------------------------------------------------------------------

GROUPS: Sequence[list[int]] = [[0, 1, 2, 3]] * 3 + [[8, 9, 10, 11]] * 4
HELD = Task("experts_gate_up", (0, 0, 0))


def others_before(order: list[tuple[str, tuple[int, ...]]]) -> bool:
    """In the first layer all tokens of the second group are done before expert 0 begins: it is the
    first of those in use, and its own four tokens come first."""
    held = order.index((HELD.call, HELD.coords))
    pieces = max(c[2] for name, c in order if name == "combine_experts") + 1
    wanted = {("combine_experts", (0, t, j)) for t in range(3, 7) for j in range(pieces)}
    wanted |= {("experts_down", (0, a, j, 0)) for a in range(1, 8) for j in range(pieces)}
    return wanted <= set(order[:held])


def test_an_expert_that_is_held_back_delays_no_other(kernel: CpuKernel) -> None:
    drawn, rows = Drawn(config(), unit_router()), rows_for(GROUPS)
    names = [p.call.name for p in kernel.plan.program.calls]
    # The rows twice, their picks, two tasks of routing, seven experts and a tile of the first one,
    # four tokens in both tiles and on their way to the next layer.
    free = 3 * 7 + 2 + 7 * (2 + 2) + 1 + 4 * (2 + 1)
    got = run_on(kernel, drawn, rows, hold=[HoldBack(HELD.call, HELD.coords, free)])
    check(drawn, rows, got)
    records = sorted(kernel.trace.records, key=lambda r: r["t_end"])
    coords = {p.call.name: len(p.vars) for p in kernel.plan.program.calls}
    order = [(n := names[int(r["call"])], tuple(int(c) for c in r["coords"])[: coords[n]])
             for r in records]
    assert others_before(order)


def test_events_alone_let_the_others_finish() -> None:
    """Any order that events allow is right, and facts hold at every use."""
    c = config(layers=1)
    plan = run_passes(moe_block_program(c), Options()).plan
    drawn, rows = Drawn(c, unit_router()), rows_for(GROUPS)
    for order, hold in ((Order.random, HELD), (Order.adversarial, None)):
        arrays = arguments(drawn, rows)
        report = run(plan, dims(len(rows)), arrays, order=order, hold=hold, debug=True)
        report.raise_if_bad()
        check(drawn, rows, arrays)
        if hold is not None:
            assert others_before([(t.call, t.coords) for t in report.order])


# ---- on a GPU, emulated ------------------------------------------------------------------------


def emulated(
    steps: Sequence[np.ndarray], schedule: str, stream: bool, tokens: int = 128
) -> tuple[list[bytes], set[tuple[str, bool, bool]]]:
    """What comes out of the rows of each step, and of each streamed product: call, whether a loader
    brings the weights, and whether they go by chunks."""
    drawn = Drawn(config(), unit_router())
    how = {"experts_gate_up": schedule, "experts_down": schedule}
    options = Options("cuda", schedule=tuple(how.items()), stream=stream, workers=3)
    state = run_passes(moe_block_program(config(), "cuda", et.bf16, tokens), options)
    assert state.plan is not None and state.report is not None and state.report.ok
    found = []
    with emulated_kernel(state.plan, 3) as kernel:
        for rows in steps:
            arrays = arguments(drawn, rows, "cuda", et.bf16)
            kernel.launch(dims(len(rows)), arrays)
            wanted, used = reference(drawn, rows)
            assert np.abs(arrays["result"] - wanted).max() < 0.05
            assert arrays["active"].tolist() == [len(set.union(*layer)) for layer in used]
            found.append(arrays["result"].tobytes())
    return found, {
        (s.call, s.is_streamed, s.is_b_streamed) for s in state.plan.streams if s.call in how
    }


def test_weights_of_experts_are_streamed_to_the_same_bits() -> None:
    """With few rows for each expert, and with more than the 64 columns of a pass."""
    steps = [rows_for(SOME[:11]), rows_for([[9, 2, 5, 11]] * 70)]
    seen = []
    for schedule, stream in (("ticket", True), ("static", True), ("push", False)):
        bits, streams = emulated(steps, schedule, stream)
        seen.append(bits)
        assert streams == {("experts_gate_up", stream, True), ("experts_down", stream, True)}
    assert seen[0] == seen[1] == seen[2]


def test_scores_may_come_in_parts_of_the_columns() -> None:
    c = replace(config(layers=1), hidden=256)
    router = np.random.default_rng(5).standard_normal((COUNT, c.hidden)).astype(np.float32)
    drawn, rows = Drawn(c, router), np.random.default_rng(6).standard_normal((9, c.hidden))
    state = run_passes(moe_block_program(c, "cuda", et.bf16, parts=2), Options("cuda", workers=3))
    assert state.plan is not None and state.report is not None and state.report.ok
    arrays = arguments(drawn, rows, "cuda", et.bf16)
    with emulated_kernel(state.plan, 3) as kernel:
        kernel.launch(dims(len(rows)), arrays)
    wanted, used = reference(drawn, rows)
    assert np.abs(arrays["result"] - wanted).max() < 0.05
    assert arrays["active"].tolist() == [len(set.union(*layer)) for layer in used]


def test_the_experts_of_one_row_are_streamed_and_it_is_staged_as_a_whole() -> None:
    seen = []
    for schedule in ("static", "ticket"):
        bits, streams = emulated([rows_for([[15, 0, 14, 3]])], schedule, True, tokens=1)
        assert streams == {("experts_gate_up", True, False), ("experts_down", True, False)}
        seen.append(bits)
    assert seen[0] == seen[1]


def test_the_number_of_rows_decides_the_schedule_on_a_gpu() -> None:
    for tokens, wanted in ((1, "static (balanced): uniform tiles"),
                           (8, "ticket: run-time extents: balance by claiming, weights")):
        program = llama(PRESETS["qwen3-30b-a3b"], Weights("cuda", et.bf16), tokens=tokens)
        told = [line for line in et.explain(program, target="cuda").splitlines()
                if line.startswith(("  experts_gate_up(", "  experts_down("))]
        assert len(told) == 2 and all(wanted in line for line in told)


def test_routing_tells_of_itself_once() -> None:
    plan = run_passes(moe_block_program(config(), "cuda", et.bf16), Options("cuda")).plan
    assert plan is not None
    assert [n.event for n in plan.call("route").notifies] == ["routed"]
    for call in ("experts_gate_up", "experts_down"):
        assert [w.event for w in plan.call(call).header] == ["routed"]


@pytest.fixture(scope="module")
def published() -> Plan:
    program = llama(PRESETS["qwen3-30b-a3b"], Weights("cuda", et.bf16), tokens=128)
    plan = run_passes(program, Options(target="cuda")).plan
    assert plan is not None
    return plan


def test_tokens_of_an_expert_do_not_cost_the_ring_its_slots(published: Plan) -> None:
    """Most experts have few tokens, however many one may have."""
    assert "#define ET_STAGES 13\n" in generate(published).text


def test_scores_and_picks_carry_flags_and_the_routing_waits_for_the_residual(
    published: Plan,
) -> None:
    told = {(h.event, h.call): (h.kind, h.tensors) for h in published.handoffs}
    assert told["router_done", "pick_experts"] == (HandoffKind.tagged, ("scores",))
    kind, tensors = told["picked", "route"]
    assert kind is HandoffKind.tagged and set(tensors) == {"experts_chosen", "given_share"}
    assert told["scored", "route"][0] is HandoffKind.counter
    assert not published.call("experts_gate_up").waits


def test_layers_share_what_goes_between_the_products(published: Plan) -> None:
    """What each had for itself would go out to the memory."""
    assert {"act", "y"} <= set(published.shared_scratch)


def test_shares_are_asked_for_while_a_token_waits_for_its_experts(published: Plan) -> None:
    """They come with the routing, though layers share their place."""
    assert "share" in published.iteration_private
    p, (routed, done) = published.program.placed("combine_experts"), \
        published.call("combine_experts").waits
    settled = DataAvailability(published, p).with_wait(routed)
    _, y, share, _ = p.call.reads
    assert settled.is_region_known(share) and not settled.with_wait(done).is_region_known(y)
    assert not DataAvailability(published, p).is_region_known(share)


# ---- proof -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("layout", "tokens"), [("cuda", 128), ("cuda", 1)])
def test_the_published_model_is_proved(layout: str, tokens: int) -> None:
    program = llama(PRESETS["qwen3-30b-a3b"], Weights(layout, et.bf16), tokens=tokens)
    assert et.check(program).ok


def test_experts_have_cells_of_their_own() -> None:
    text = et.explain(moe_block_program(config()))
    assert "experts_down(l, a, j, k) waits for [l, a]" in text
    assert "combine_experts(l, t, i) waits for [l, rank[l, t, _r1], i] for _r1 in 0 .. 4" in text
    assert f"experts_gate_up(l < {LAYERS}, a < active[l]" in text
