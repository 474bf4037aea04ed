"""The emulator finds what is broken: each case takes something out of the device code, and some
launch then gives wrong numbers, does what no thread may do, or does not go on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from backend.test_cuda_emulated import arrays_of, assert_close, plan_of
from moe import moe
from support.backends import run_direct
from support.emulated import emulated_kernel
from support.handoffs import pair
from support.streams import PROGRAMS

import eventtensor as et
from eventtensor.runtime.build import DEVICE

Case = tuple[Callable[[], et.Program], dict[str, str], dict[str, int]]
LAYERS: Case = (PROGRAMS["layers"][0], {"schedule": "ticket"}, {"n": 8, "depth": 4})
PUSHED: Case = (moe, {"schedule": "push"}, {"n": 9})
FLAGS: Case = (pair, {"schedule": "static", "handoff": "flag"}, {"n": 4})
COUNTED: Case = (LAYERS[0], {"schedule": "static", "handoff": "counter"}, LAYERS[2])
BULK: Case = (pair, {"schedule": "static", "handoff": "bulk"}, {"n": 4})
# what is broken: (program, header, text, what comes in its place)
BROKEN: dict[str, tuple[Case, str, str, str]] = {
    "pages are not released": (
        LAYERS, "cuda/stream.cuh", "pages_.release(number, TURNS);", ""),
    "a warp releases its page twice": (
        LAYERS, "cuda/stream.cuh", "pages_.release(number, TURNS);",
        "pages_.release(number, TURNS); pages_.release(number, TURNS);"),
    "pages are read before they land": (
        LAYERS, "cuda/ring.cuh", "while (!bar_over(full_ + slot * 8, number / SLOTS & 1)) {}", ""),
    "the loader does not turn the parity over": (
        LAYERS, "cuda/loader.cuh", "slot_ = 0, round_ ^= 1;", "slot_ = 0;"),
    "the loader does not wait for the launch to begin": (
        LAYERS, "cuda/loader.cuh", "while (!bar_over(ring_.begun, 0)) {}", ""),
    "parts are folded before all are there": (
        LAYERS, "cuda/panels.cuh", "uint32_t rows, uint32_t n) {\n  sync();",
        "uint32_t rows, uint32_t n) {"),
    "an event is not waited for": (
        COUNTED, "cuda/worker.cuh", "bool reached = false;", "bool reached = true;"),
    "the sets of cells are not turned over": (
        LAYERS, "cuda/worker.cuh", "cell_set(s.sets->parity, 1 - parity);", ""),
    "some threads miss a barrier": (
        LAYERS, "cuda/panels.cuh", "  sync();\n  return {uint32_t(", "  if (lane() < 200) sync();\n"
        "  return {uint32_t("),
    "a queue is read before a task is there": (
        PUSHED, "claim.h", "if (found != 0) return found - 1;", "return found - 1;"),
    "a counter forgets an add": (
        PUSHED, "claim.h", "return ct_add(w.cells[cell], by) == Queue::OPEN;",
        "return ct_add(w.cells[cell], by & ~1) == Queue::OPEN;"),
    "tags are not looked at": (
        FLAGS, "cuda/flag.cuh", "if (tag(w[f][k]) != epoch) missing = e + k;",
        "if (false) missing = e + k;"),
    "a copy is not waited for": (
        BULK, "cuda/stage.cuh", "while (!bar_over(bar(), phase_)) {}", ""),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_broken_is_found(what: str, tmp_path: Path) -> None:
    (make, options, dims), header, old, new = BROKEN[what]
    device = tmp_path / "device"
    shutil.copytree(DEVICE, device)
    text = (device / header).read_text()
    assert text.count(old) == 1
    (device / header).write_text(text.replace(old, new))
    plan = plan_of(make(), **options)
    with (
        pytest.raises((AssertionError, et.EventTensorError)),
        emulated_kernel(plan, wait_limit_s=1, still_s=1, device=device) as kernel,
    ):
        for seed in range(10):
            got = arrays_of(plan, dims, seed)
            wanted = run_direct(plan.program, dims, got)
            kernel.launch(dims, got)
            assert_close(got, wanted, what)
