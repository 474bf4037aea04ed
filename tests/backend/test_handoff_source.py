"""What each hand-off generates: kept text of its tasks, what must and must not stand there, and a
compiler that takes it for sm_90a. No GPU is needed."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import eventtensor as et
from eventtensor.codegen.cuda import generate
from eventtensor.compiler import run_passes
from eventtensor.config import Options, environment
from eventtensor.errors import BadOption
from eventtensor.ir.plan import HandoffKind, Plan
from eventtensor.ir.walk import evaluate
from eventtensor.runtime.cpp_build import DEVICE
from eventtensor.runtime.cpu_kernel import CpuKernel
from eventtensor.runtime.cuda.cuda_build import build_cubin
from eventtensor.targets.h200 import H200
from eventtensor.targets.sm80 import A100
from examples.chain import chain
from examples.mlp import mlp
from tests.support.handoffs import broadcast, halves, matrix, near_and_far, pair, total
from tests.support.tables import ranked

GOLDEN = Path(__file__).parent.parent / "golden"
# kind: (program, schedule)
KEPT = {
    "same_worker": (pair, "static:affine"),
    "tagged": (broadcast, "static"),
    "bulk": (matrix, "static"),
}


def plan_of(program: et.Program, handoff: str, schedule: str = "static") -> Plan:
    state = run_passes(program, Options(target="cuda", schedule=schedule, handoff=handoff))
    assert state.plan is not None and state.report is not None and state.report.ok
    assert any(h.kind is HandoffKind(handoff) for h in state.plan.handoffs)
    return state.plan


def source(handoff: str) -> str:
    make, schedule = KEPT[handoff]
    return generate(plan_of(make(), handoff, schedule)).text


def tasks(text: str) -> str:
    """The functions of tasks, and what hands over in their bodies."""
    kept, in_body = [], False
    words = ("__device__", "flag", "tagged", "bulk_loader", "task_", "return true",
             "return false", ", by ", "_words")
    for line in text[text.index("// ---- make") : text.index("// grid of make")].split("\n"):
        in_body = " body_" in line if line.startswith("__device__") else in_body
        if not in_body or line in ("", "}") or any(w in line for w in words):
            kept.append(line.replace("__noinline__ ", ""))
    return "\n".join(kept)


@pytest.mark.parametrize("kind", KEPT)
def test_tasks_are_as_kept(kind: str) -> None:
    text, path = tasks(source(kind)), GOLDEN / f"handoff_{kind}.cu"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


# ---- worker --------------------------------------------------------------------------------


def test_an_edge_on_one_worker_has_no_cell_and_keeps_its_barrier() -> None:
    plan = plan_of(pair(), "same_worker", "static:affine")
    made = generate(plan)
    assert "ev_wait" not in made.text and "ev_notify" not in made.text
    assert "args.cell" not in made.text and evaluate(made.cells, {"n": 64}) == 0
    for name in ("make", "use"):  # the body ends at the barrier, or the task has one behind it
        start = made.text.index(f"body_{name}(")
        body = made.text[start : made.text.index("\n}", start)]
        task = made.text[made.text.index(f"bool task_{name}(") :]
        behind = task[task.index(f"body_{name}(") : task.index("et::task_end(")]
        assert body.rstrip().endswith("et::sync();") or "et::sync();" in behind


def test_a_notify_stays_for_those_who_count() -> None:
    how = (("near", "static:affine"), ("far", "ticket"))
    state = run_passes(near_and_far(), Options(target="cuda", schedule=how, handoff="same_worker"))
    assert state.plan is not None
    text = generate(state.plan).text
    assert text.count("et::ev_notify(worker") == 1 and text.count("et::ev_wait(worker") == 1
    assert "ev_wait" in text[text.index("bool body_far(") : text.index("bool task_far(")]


# ---- flag ----------------------------------------------------------------------------------


def late_reader() -> et.Program:
    """C waits for A through B only; it reads what A wrote."""
    p = et.Program("late")
    a, o = p.input("a", (64,), et.f32), p.output("o", (64,), et.f32)
    x, z = p.scratch("x", (64,), et.bf16), p.scratch("z", (64,), et.bf16)

    @et.task
    def add(u, v, out):
        out[:] = u + v

    p.call(total, name="make", grid=(), reads=lambda: a[:], writes=lambda: x[:])
    p.call(total, name="B", grid=(), reads=lambda: x[:], writes=lambda: z[:])
    p.call(add, name="C", grid=(), reads=lambda: (z[:], x[:]), writes=lambda: o[:])
    return p


def test_all_who_touch_a_flagged_tensor_use_words() -> None:
    text = generate(plan_of(late_reader(), "tagged", "ticket")).text
    assert "et::Tagged<et::bf16>* x;  // scratch bf16[64], with flags" in text
    assert '#include "cuda/sync/tagged.cuh"' in text
    reads = re.findall(
        r"et::TaggedLoad<et::bf16, 1, 16, 1>\{\w+, \w+_tile, TENSOR_x, &args\.x\}", text
    )
    assert len(reads) == 2
    views = re.findall(r"et::View<(const )?([\w:<>]+), 1> \w+\{(?:et::global\()?args\.x[ ,)]", text)
    assert {kind for _, kind in views} == {"et::Tagged<et::bf16>"}
    assert "ev_wait" not in text and "ev_notify" not in text


def test_a_task_is_ready_when_its_words_are_there() -> None:
    text = source("tagged")
    task = text[text.index("bool body_use(") : text.index("// grid of make")]
    assert task.index("read_tagged") < task.index("et::task_ready") < task.index("out.data[")
    assert task.count("et::task_ready(worker);") == 1
    assert "if (!body_use(worker, args, i)) return false;" in task


def test_a_body_with_one_store_writes_its_words_straight_away() -> None:
    text = source("tagged")
    body = text[text.index("void body_make(") : text.index("bool task_make(")]
    assert "const et::TaggedStore<float> out_words{out.data, worker.epoch};" in body
    assert body.count("out_words[") == 1 and "write_tagged" not in body and "_stage" not in body


def test_a_body_with_several_stores_publishes_once_when_all_are_done() -> None:
    text = generate(plan_of(halves(), "tagged", "ticket")).text
    body = text[text.index("void body_make(") : text.index("bool task_make(")]
    assert (
        body.count("et::write_tagged(worker, out, out_stage);") == 1 and "TaggedStore" not in body
    )
    *_, meets, comment, place = body[: body.index("et::write_tagged")].rstrip().split("\n")
    assert meets.strip() == "et::sync();"
    assert comment.strip().startswith("// out = ") and "et::Tagged<float>" in place


def test_words_are_touched_by_relaxed_accesses_of_their_size_only() -> None:
    text = (DEVICE / "cuda/sync/tagged.cuh").read_text()
    found = set(re.findall(r"\bptx::(\w+)", text))
    singles = {f"{op}_relaxed_gpu_{n}" for op in ("ld", "st") for n in ("b32", "b64")}
    asked = {f"ld_relaxed_gpu_{n}_if" for n in ("b32", "b64", "v4_b32", "v2_b64")}
    assert found == singles | asked | {"st_relaxed_gpu_v4_b32", "st_relaxed_gpu_v2_b64"}


def looks(*sizes: tuple[int, et.DType]) -> list[str]:
    """Bytes of a place and slots of a thread, for two tensors that one task reads."""
    p = et.Program("looks")
    a, b, x, y, o, q = (
        getattr(p, role)(name, (n,), dtype)
        for role, names in (("input", "ab"), ("scratch", "xy"), ("output", "oq"))
        for name, (n, dtype) in zip(names, sizes, strict=True))

    @et.task
    def copies(u, v, to_u, to_v):
        to_u[:] = u
        to_v[:] = v

    p.call(copies, name="make", grid=(), reads=lambda: (a[:], b[:]), writes=lambda: (x[:], y[:]))
    p.call(copies, name="use", grid=(), reads=lambda: (x[:], y[:]), writes=lambda: (o[:], q[:]))
    return re.findall(
        r"et::TaggedLoad<[\w:]+, 1, ([^>]*)>", generate(plan_of(p, "tagged", "ticket")).text
    )


def test_a_thread_asks_for_all_its_words_in_one_look() -> None:
    assert looks((2048, et.bf16), (2048, et.f32)) == ["16, 2", "16, 4"]
    assert looks((8192, et.bf16), (16, et.u8)) == ["16, 8", "16, 1"]


def test_words_are_asked_for_by_16_bytes_where_they_fill_them() -> None:
    assert looks((501, et.f32), (501, et.bf16)) == ["4, 2", "4, 2"]
    assert looks((502, et.f32), (502, et.bf16)) == ["16, 1", "4, 2"]


def test_registers_bound_how_many_words_are_asked_for_at_once() -> None:
    assert looks((4096, et.f32), (16, et.bf16)) == ["16, 8", "16, 1"]
    assert looks((4096, et.f32), (4096, et.bf16)) == ["16, 4", "16, 4"]


def test_hand_tuned_bodies_see_stored_elements_on_both_sides() -> None:
    hand = "if (et::is_leader()) out.data[0] = x.data[0];"

    @et.task(cuda=hand)
    def tuned(x, out):
        out[:] = x

    p = et.Program("tuned")
    a, x, o = (getattr(p, r)(n, (64,), et.bf16) for r, n in (
        ("input", "a"), ("scratch", "x"), ("output", "o")))
    p.call(tuned, name="make", grid=(), reads=lambda: a[:], writes=lambda: x[:])
    p.call(tuned, name="use", grid=(), reads=lambda: x[:], writes=lambda: o[:])
    text = generate(plan_of(p, "tagged", "ticket")).text
    make = text[text.index("void body_make(") : text.index("bool task_make(")]
    assert "hand_make(worker, et::View<const et::bf16, 1>" in make
    assert make.index("hand_make(") < make.index("et::write_tagged(worker, out, out_stage);")
    use = text[text.index("bool body_use(") : text.index("bool task_use(")]
    assert use.index("read_tagged") < use.index("task_ready") < use.index("hand_use(")
    assert "return true;" in use


def test_a_plan_with_flags_runs_on_the_cpu_as_it_is() -> None:
    plan = plan_of(broadcast(), "tagged")
    kernel = CpuKernel(plan, Options(workers=2))
    assert "et::Tagged" not in kernel.source and "ev_wait" in kernel.source
    kernel.close()


# ---- bulk ----------------------------------------------------------------------------------


def test_the_copy_comes_after_the_waits_and_before_the_task_is_ready() -> None:
    text = source("bulk")
    body = text[text.index("bool body_use(") : text.index("bool task_use(")]
    copy = body.index("worker.bulk_loader.bring<float>(x_tile, x.data, ")
    assert body.index("et::ev_wait") < copy < body.index("task_ready")
    assert "et::Matrix<float>{x_here" in body


def test_a_task_fences_its_shared_accesses_before_the_barrier_ahead_of_its_copies() -> None:
    text = source("bulk")
    assert text.count("et::fence_shared_reads();") == 1
    body = text[text.index("bool body_use(") : text.index("bool task_use(")]
    assert body.index("et::fence_shared_reads();") < body.index("et::ev_wait")
    (wait,) = [line for line in body.split("\n") if "et::ev_wait" in line]
    assert wait.startswith("  if (!et::ev_wait")  # always done, and ends at a barrier


def test_the_barrier_of_the_copies_is_made_before_the_block_first_meets() -> None:
    text = source("bulk")
    entry = text[text.index("__global__") :]
    assert "#define ET_BULK 1" in text
    assert entry.index("worker.bulk_loader.begin();") < entry.index("et::launch_begin(worker)")


def test_the_copying_thread_fences_what_others_wrote_first() -> None:
    text = (DEVICE / "cuda/memory/bulk_operand.cuh").read_text()
    code = text[text.index("class BulkOperandLoader") :]
    assert code.index("fence_global_writes();") < code.index("bulk_copy(") < code.index("bar_over(")


def test_without_bulk_copies_the_operand_is_read_in_place() -> None:
    with pytest.raises(BadOption, match="a100 has no bulk copies"):
        run_passes(matrix(), Options(target="cuda", schedule="static", handoff="bulk"), A100)
    counted = Options(target="cuda", schedule="static", handoff="counter")
    plan = run_passes(matrix(), counted, A100).plan
    assert plan is not None
    text = generate(plan, A100).text
    assert "bulk_loader" not in text and "fence_shared" not in text and "ev_wait" in text


def test_numbers_are_found_again_by_a_loader_and_waited_for_without_one() -> None:
    options = Options(target="cuda", schedule="static")
    plans = [(run_passes(ranked(), options, target).plan, target) for target in (H200, A100)]
    text, plain = (generate(plan, target).text for plan, target in plans if plan is not None)
    found = "if (!et::find_best<3, 64, 64>(worker, at_here, args.scores + 0)) return false;"
    assert text.count(found) == 1 and "cell.known" not in text
    assert text.count("et::task_ready_for_pages(worker);") == 1
    assert "find_best" not in plain and "for_pages" not in plain
    assert plain.count("et::ev_wait(worker, args.cell.known") == 1
    assert plain.count("et::ev_notify(worker, args.cell.known") == 1


def test_a_kernel_without_hand_offs_has_none_of_it() -> None:
    state = run_passes(pair(), Options(target="cuda", schedule="static", handoff="counter"))
    assert state.plan is not None
    text = generate(state.plan).text
    assert "_tagged" not in text and "bulk_loader" not in text and "#define ET_BULK 0" in text
    assert text.count("et::ev_wait(worker") == 1


# ---- compilers -----------------------------------------------------------------------------

COMPILED = {
    "same_worker": lambda: plan_of(pair(), "same_worker", "auto"),
    "tagged": lambda: plan_of(broadcast(), "tagged"),
    "flag_push": lambda: plan_of(late_reader(), "tagged", "push"),
    "flag_chain": lambda: plan_of(chain(), "tagged"),
    "flag_2d": lambda: plan_of(mlp(), "tagged"),
    "bulk": lambda: plan_of(mlp(), "bulk"),
    "bulk_chain": lambda: plan_of(chain(), "bulk", "ticket"),
}


@pytest.mark.parametrize("name", COMPILED)
def test_a_compiler_takes_it(name: str) -> None:
    text = generate(COMPILED[name](), debug=name == "tagged").text
    built = build_cubin(text, name, "sm_90a", environment())
    assert built.path.read_bytes()[:4] == b"\x7fELF"
