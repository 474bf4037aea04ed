"""Pages that the ring lends to the tasks of a grid: what they keep there is theirs, whatever the
stream brings meanwhile, and how many slots a launch has follows its columns."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from eventtensor.codegen.cuda.kernel import generate
from eventtensor.codegen.cuda.shared import LINES, PERSISTENT_BYTES
from eventtensor.errors import NoRoom
from eventtensor.ir.plan import Plan
from eventtensor.targets.h200 import H200
from tests.backend.test_cuda_emulated import arrays_of, assert_close
from tests.support.backends import run_direct
from tests.support.emulated import emulated_kernel
from tests.support.streams import keeping, packed, plan_of


def lending(schedule: str = "static", stream: bool = True) -> Plan:
    return plan_of(keeping(), schedule=schedule, stream=stream)


@pytest.mark.parametrize("schedule, stream", [
    ("static", True), ("ticket", True), ("push", True), ("static", False)])
def test_what_tasks_keep_in_lent_pages_is_theirs(schedule: str, stream: bool) -> None:
    plan = lending(schedule, stream)
    with emulated_kernel(plan, 2) as kernel:
        for n in (1, 16, 17, 100, 3):
            dims = {"n": n, "depth": 3}
            got = arrays_of(plan, dims, n)
            wanted = run_direct(plan.program, dims, got)
            kernel.launch(dims, got)
            assert_close(got, wanted, f"n = {n}")


def test_both_sides_of_the_ring_know_of_lent_pages() -> None:
    text = generate(lending()).text
    loop = text[text.index("bool feed(et::ProducerWarp& worker") :]
    assert loop.index("worker.lend_stages(et::BORROWED_STAGES)") < loop.index("feed_layer(worker")
    assert (
        text.count("const et::BorrowedStages lent(worker);") == 1
        and "#define ET_LENDS_STAGES 1" in text
    )


def test_nothing_is_lent_to_tasks_that_keep_nothing() -> None:
    assert "ET_LENDS_STAGES 0" in generate(plan_of(packed())).text


def test_a_gpu_that_does_not_hold_what_tasks_keep_is_refused() -> None:
    small = replace(H200, capabilities=replace(H200.capabilities, shared_bytes=60 * 1024))
    with pytest.raises(NoRoom, match="do not hold what its tasks keep"):
        generate(lending(stream=False), small)


def test_lines_of_few_columns_leave_slots() -> None:
    text = generate(lending()).text
    page, slots, room = (
        int(re.search(rf"#define ET_{n} (\d+)", text)[1])
        for n in ("STAGE_BYTES", "STAGES", "PIPELINE_BYTES")
    )
    assert slots == (room - LINES[0]) // page
    assert (room - LINES[1]) // page >= PERSISTENT_BYTES // page


def test_tasks_without_a_product_have_their_temporaries_where_lines_are() -> None:
    """So that next to nothing of shared memory is theirs alone. A product's own come later: its
    lines are on their way."""
    made = generate(lending())
    room = int(re.search(r"#define ET_PIPELINE_BYTES (\d+)", made.text)[1])
    page = int(re.search(r"#define ET_STAGE_BYTES (\d+)", made.text)[1])
    setup = H200.costs.shared_memory.setup_bytes
    assert setup <= made.shared_bytes - room < setup + page
    keep, layer = (made.text[made.text.index(f" body_{name}(") :].split("\n}\n")[0]
                   for name in ("keep", "layer"))
    assert (
        keep.split("\n")[1].strip()
        == "worker.arena.open_beside(worker.pipeline.activation_bytes());"
    )
    assert layer.index("et::begin_activation_load_after") < layer.index("open_beside")
