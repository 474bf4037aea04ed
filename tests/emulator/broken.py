"""Broken kernels, each in a process of its own: it may write anywhere.

`python -m tests.emulator.broken` reads cases, with folders for them, and forks for each. It prints
how the fork has ended: 0 if the emulator has found what is broken. Forks share what is imported and
planned.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import eventtensor as et
from eventtensor.ir.plan import Plan
from eventtensor.runtime.cpp_build import DEVICE
from examples.moe import moe
from tests.backend.test_cuda_emulated import arrays_of, assert_close, plan_of
from tests.support.backends import run_direct
from tests.support.early import residual, word_by_word
from tests.support.emulated import emulated_kernel
from tests.support.handoffs import pair
from tests.support.streams import PROGRAMS, gathered, keeping, packed, told_twice, wide_layers
from tests.support.streams import normed as normed_columns
from tests.support.tables import listed

# Most cases are found by the first one; where blocks must meet in an order that the host chooses,
# by one in four, or fewer on a busy machine.
LAUNCHES = 200
LIMIT_S = 120
FAILED, NOT_FOUND = 1, 3
Case = tuple[Callable[[], et.Program], dict[str, str], dict[str, int]]
LAYERS: Case = (PROGRAMS["layers"][0], {"schedule": "ticket"}, {"n": 8, "depth": 4})
PUSHED: Case = (moe, {"schedule": "push"}, {"n": 9})
THIN: Case = (lambda: word_by_word(et.bf16), {"schedule": "static", "handoff": "tagged"}, {})
FLAGS: Case = (pair, {"schedule": "static", "handoff": "tagged"}, {"n": 4})
COUNTED: Case = (LAYERS[0], {"schedule": "static", "handoff": "counter"}, LAYERS[2])
WIDE: Case = (lambda: packed(1, 2048, 128, 6), {"schedule": "static"}, {"n": 100})
SPANS: Case = (lambda: packed(1, 2048, 128, 40), {"schedule": "static"}, {"n": 50})
PASSES: Case = (lambda: packed(1, 2048, 256, 6), {"schedule": "static"}, {"n": 200})
PAGED: Case = (lambda: packed(8, 1024, 128, 8), {"schedule": "static"}, {"n": 100})
PAIRS: Case = (lambda: packed(8, 1024, 128, 8, bundle=2), {"schedule": "static"}, {"n": 100})
FOURS: Case = (lambda: packed(8, 1024, 128, 8, bundle=4), {"schedule": "static"}, {"n": 100})
LANES: Case = (gathered, {"schedule": "static"}, {"n": 100})
BOTH: Case = (told_twice, {"schedule": "ticket"}, {"n": 40})
SENT: Case = (wide_layers, {"schedule": "ticket"}, {"n": 40, "depth": 3})
FLOWING: Case = (keeping, {"schedule": "static"}, {"n": 12, "depth": 3})
NEAR: Case = (lambda: normed_columns(128), {"schedule": "static"}, {"n": 64})
TWO: Case = (residual, {"schedule": "static", "handoff": "tagged"}, {})
LISTED: Case = (listed, {"schedule": "static"}, {})
BULK: Case = (pair, {"schedule": "static", "handoff": "bulk"}, {"n": 4})
# what is broken: (program, header, text, what comes in its place)
BROKEN: dict[str, tuple[Case, str, str, str]] = {
    "pages are not released": (
        LAYERS,
        "cuda/roles/operand_source.cuh",
        "pipeline_.release(number, TURNS);",
        "",
    ),
    "a warp releases its page twice": (
        LAYERS,
        "cuda/roles/operand_source.cuh",
        "pipeline_.release(number, TURNS);",
        "pipeline_.release(number, TURNS); pipeline_.release(number, TURNS);",
    ),
    "pages are read before they land": (
        LAYERS,
        "cuda/memory/smem_pipeline.cuh",
        "await(bars_ + offsetof(SmemPipeline, full) + stage * 8, stages_.round(number) & 1);",
        "",
    ),
    "the loader does not turn the parity over": (
        LAYERS,
        "cuda/roles/producer.cuh",
        "stage_ = 0, round_ ^= 1;",
        "stage_ = 0;",
    ),
    "the loader does not wait for the launch to begin": (
        LAYERS,
        "cuda/roles/producer.cuh",
        "while (!bar_over(pipeline_.begun, 0)) {}",
        "",
    ),
    "parts are folded before all are there": (
        LAYERS,
        "cuda/mma/gemm_skinny.cuh",
        "    sync();  // all parts are there\n",
        "",
    ),
    "the threads do not wait for the one that decides": (
        LAYERS,
        "cuda/roles/worker.cuh",
        "= int64_t(decide());\n  sync();",
        "= int64_t(decide());",
    ),
    "a thread loops without end": (
        FLAGS,
        "cuda/roles/launch.cuh",
        "bool launch_begin(Worker& w) {",
        "bool launch_begin(Worker& w) {\n  for (volatile int k = 0; is_leader(); ++k) {}",
    ),
    "a line is read before it lands": (
        WIDE,
        "cuda/memory/smem_pipeline.cuh",
        "await(shared_address(pipeline_->lines.full) + place.bar(), place.parity);",
        "",
    ),
    "tensor cores read a line without a fence": (
        LANES,
        "cuda/memory/smem_pipeline.cuh",
        "    if constexpr (!BY_TMA) fence_shared_writes();\n",
        "",
    ),
    "a line is brought to where one is still read": (
        LANES,
        "cuda/roles/activation_producer.cuh",
        "if (!wait(empty_ + bar, place.parity ^ 1)) return false;",
        "",
    ),
    "a box is brought to where a line is still read": (
        WIDE,
        "cuda/memory/tma_activation.cuh",
        "if (!wait_activation(pipeline_, empty_ + place.bar(), place.parity ^ 1)) return false;",
        "",
    ),
    "some bytes of a line are not announced": (
        SPANS,
        "cuda/memory/tma_activation.cuh",
        "bar_expect(bar, halves * N * SWIZZLE);",
        "bar_expect(bar, N * SWIZZLE);",
    ),
    "the second half of a line is the first one": (
        SPANS,
        "cuda/memory/tma_activation.cuh",
        "x + b * SWIZZLE / 2",
        "x",
    ),
    "boxes come of other columns": (
        PASSES,
        "cuda/memory/tma_activation.cuh",
        "job.in.row + column",
        "job.in.row",
    ),
    "boxes come to another place": (
        WIDE,
        "cuda/memory/tma_activation.cuh",
        "tma_load_2d(to + (b * N + c) * SWIZZLE,",
        "tma_load_2d(to + b * 512,",
    ),
    "a page comes of other weights": (PAGED, "cuda/roles/producer.cuh", "z + panel", "z"),
    "a page is that of another group": (
        FOURS,
        "cuda/roles/producer.cuh",
        "from + (panel + p) * stride",
        "from",
    ),
    "the second pair of panels is the first one": (
        PAIRS,
        "cuda/roles/producer.cuh",
        "(panel + p) * stride",
        "panel * stride",
    ),
    "the second columns of a line are the first ones": (
        WIDE,
        "cuda/memory/tma_activation.cuh",
        "y + c, bar",
        "y, bar",
    ),
    "a page goes before its second line is read": (
        PAGED,
        "cuda/mma/gemm_wgmma.cuh",
        "      if (line % EACH != EACH - 1) return;\n",
        "",
    ),
    "pages that are lent come with those of the stream": (
        FLOWING,
        "cuda/roles/producer.cuh",
        "k < pages && open(0); ++k) advance();",
        "k + 1 < pages && open(0); ++k) advance();",
    ),
    "a lent page is given back while it is in use": (
        FLOWING,
        "cuda/memory/persistent_smem.cuh",
        "    pipeline_.borrow_stages(BORROWED_STAGES);\n",
        "pipeline_.borrow_stages(BORROWED_STAGES); pipeline_.return_stages(BORROWED_STAGES);\n",
    ),
    "lines go before their products are through": (
        WIDE,
        "cuda/mma/gemm_wgmma.cuh",
        "      ptx::wgmma_wait<1>();\n",
        "",
    ),
    "the last products are not waited for": (
        WIDE,
        "cuda/mma/gemm_wgmma.cuh",
        "      if constexpr (SHARED != 0) ptx::wgmma_wait<0>(shared_);\n",
        "",
    ),
    "a page goes before its last line is read": (
        SPANS,
        "cuda/mma/gemm_wgmma.cuh",
        "if (next % walk_.spans() == 0",
        "if (true",
    ),
    "the result is put where lines are still read": (
        NEAR,
        "cuda/mma/gemm_wgmma.cuh",
        "      sync();  // the result may lie where activation tiles did\n",
        "",
    ),
    "an event is not waited for": (
        COUNTED,
        "cuda/roles/worker.cuh",
        "bool reached = false;",
        "bool reached = true;",
    ),
    "the sets of cells are not turned over": (
        LAYERS,
        "cuda/roles/launch.cuh",
        "cell_set(s.sets->parity, 1 - parity);",
        "",
    ),
    "some threads miss a barrier": (
        LAYERS,
        "cuda/mma/gemm_skinny.cuh",
        "  sync();\n  return {uint32_t(",
        "  if (thread_rank() < 200) sync();\n  return {uint32_t(",
    ),
    "a queue is read before a task is there": (
        PUSHED,
        "claim.h",
        "if (found != 0) return found - 1;",
        "return found - 1;",
    ),
    "a counter forgets an add": (
        PUSHED,
        "claim.h",
        "return ct_add(w.cells[cell], by) == Queue::OPEN;",
        "return ct_add(w.cells[cell], by & ~1) == Queue::OPEN;",
    ),
    "tags are not looked at": (FLAGS, "cuda/sync/tagged.cuh", "there && tag(w) == epoch", "true"),
    "one tag stands for its neighbours": (
        THIN,
        "cuda/sync/tagged.cuh",
        "there && tag(w) == epoch",
        "tag(w) == epoch",
    ),
    "short words are taken for long ones": (
        THIN,
        "cuda/sync/tagged.cuh",
        "sizeof(W) == 4) return place[k]",
        "false) return 0",
    ),
    "a place counts as there when another is": (
        TWO,
        "cuda/sync/tagged.cuh",
        "left &= ~(1u << f);",
        "left = 0;",
    ),
    "numbers of the loader are taken before they are there": (
        LISTED,
        "cuda/sync/tagged.cuh",
        "return tag(word) == epoch;",
        "return true;",
    ),
    "numbers of the loader are those of the launch before": (
        LISTED,
        "cuda/roles/producer.cuh",
        "const uint32_t epoch = pipeline_.epoch;",
        "const uint32_t epoch = pipeline_.epoch - 1;",
    ),
    "a small operand is not put away": (TWO, "cuda/sync/tagged.cuh", "    last();\n", ""),
    "a message is carried before it is sent": (
        SENT,
        "cuda/roles/notifier.cuh",
        "while (!bar_over(full_[stage], number / MOST & 1)) {}",
        "",
    ),
    "a message is not carried": (SENT, "cuda/roles/notifier.cuh", "ev_notify(*cell);", ""),
    "of two cells one is not notified": (
        BOTH,
        "cuda/roles/notifier.cuh",
        "ev_notify(*cell, *other);",
        "ev_notify(*cell);",
    ),
    "a copy is not waited for": (
        BULK,
        "cuda/memory/bulk_operand.cuh",
        "while (!bar_over(bar(), phase_)) {}",
        "",
    ),
}

# Nothing is: what the others are held against.
WHOLE = "nothing"
CASES = {
    **BROKEN,
    WHOLE: (
        FLAGS,
        "cuda/roles/operand_source.cuh",
        "pipeline_.release(number, TURNS);",
        "pipeline_.release(number, TURNS);",
    ),
}


def broken_device(what: str, device: Path) -> None:
    """The device code, with what the case takes out."""
    _, header, old, new = CASES[what]
    shutil.copytree(DEVICE, device)
    text = (device / header).read_text()
    assert text.count(old) == 1
    (device / header).write_text(text.replace(old, new))


PLANS: dict[int, Plan] = {}  # by the place of a case, which many kinds of breakage share


def planned(case: Case) -> Plan:
    if id(case) not in PLANS:
        make, options, _ = case
        PLANS[id(case)] = plan_of(make(), **options)
    return PLANS[id(case)]


def found(what: str, device: Path) -> bool:
    case = CASES[what][0]
    plan, dims = planned(case), case[2]
    try:
        with emulated_kernel(plan, wait_limit_s=1, still_s=1, device=device) as kernel:
            for seed in range(LAUNCHES):
                got = arrays_of(plan, dims, seed)
                wanted = run_direct(plan.program, dims, got)
                kernel.launch(dims, got)
                assert_close(got, wanted, what)
    except (AssertionError, et.EventTensorError) as e:
        print(type(e).__name__, e)
        return True
    return False


def in_a_fork(what: str, folder: Path) -> int:
    """The status of a process that looks for one fault, and says on its way what it sees."""
    planned(CASES[what][0])
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    signal.alarm(LIMIT_S)
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    status = FAILED
    try:
        broken_device(what, folder / "device")
        status = 0 if found(what, folder / "device") else NOT_FOUND
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(status)


def main() -> None:
    for line in sys.stdin:
        what, folder = json.loads(line)
        print(in_a_fork(what, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
