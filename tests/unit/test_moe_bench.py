"""benchmarks/moe.py without a GPU: its programs are right under every schedule, PyTorch computes
the same on the same weights, and a whole run with stand-ins for kernels has all its rows."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import eventtensor as et
from benchmarks import (
    decode,
    decoder,
    kernels,
    moe,
    moe_chain,
    moe_program,
    moe_torch,
    result_merge,
)
from benchmarks.kernels import Made
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.llm.model.decoder_tasks import Weights
from eventtensor.llm.model.llama import llama
from eventtensor.llm.model.model_presets import PRESETS
from eventtensor.llm.weights.formats.random_checkpoint import RandomCheckpoint
from eventtensor.llm.weights.weight_packing import pack_weights
from tools import performance_doc

TINY = "tiny-qwen3-moe"
CONFIG = PRESETS[TINY]


# ---- the programs ----------------------------------------------------------------------------


def packed(layout: Any, dtype: Any, names: tuple[str, ...] = ()) -> dict[str, Any]:
    found = pack_weights(RandomCheckpoint(CONFIG), layout, dtype)
    return {n: x for n, x in found.items() if not names or n in names}


def tensors(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """bf16 goes to torch by way of float32, which holds it."""
    return {n: torch.from_numpy(x.astype(np.float32)).to(torch.bfloat16)
            for n, x in arrays.items()}


def layers_of(arrays: dict[str, Any]) -> dict[str, list[Any]]:
    return {n: [moe_torch.rows_of(n, w, CONFIG) for w in x] for n, x in arrays.items()}


@pytest.mark.parametrize("tokens", [1, 6])
@pytest.mark.parametrize("schedule", moe_program.SCHEDULES)
def test_layers_are_right_under_every_schedule(schedule: str, tokens: int) -> None:
    names = ("w_router", "w_gate_up", "w_down")
    wanted = moe_program.WantedChain(TINY, CONFIG.layers, tokens, schedule)
    program = moe_program.chain(CONFIG, Weights("cpu", et.f32), tokens,
                                schedule == moe_program.BARRIER)
    options = {k: v for k, v in wanted.options().items() if k != "handoff"}
    given = np.random.default_rng(tokens).standard_normal((tokens, CONFIG.hidden), np.float32)
    result, used = np.empty_like(given), np.zeros(CONFIG.layers, np.int32)
    kernel = et.compile(program, target="interp", **options)
    kernel(**packed("cpu", np.dtype(np.float32), names), given=given, result=result, active=used,
           gains=np.ones((2 * CONFIG.layers + 1, CONFIG.hidden), np.float32),
           **({} if tokens == 1 else {"P": 0}))
    plain = layers_of({n: x.float() for n, x in tensors(packed("cuda", "bfloat16", names)).items()})
    right = moe_torch.reference(CONFIG, plain, torch.from_numpy(given))
    np.testing.assert_allclose(result, right.numpy(), rtol=2e-5, atol=2e-5)
    assert all(CONFIG.experts.top <= n <= CONFIG.experts.top * tokens for n in used)


def test_a_barrier_waits_for_all_experts_by_counters() -> None:
    for tokens in (1, 64):
        wanted = moe_program.WantedChain("qwen3-30b-a3b", 2, tokens, moe_program.BARRIER)
        handoff = tuple(wanted.options()["handoff"].items())
        plan = run_passes(wanted.program(), Options(target="cuda", handoff=handoff)).plan
        assert plan is not None
        told = {(h.event, h.call): h.kind.value for h in plan.handoffs}
        assert told["all_made", "experts_down"] == "counter"
        assert tokens == 1 or told["experts_over", "combine_experts"] == "counter"
        assert not any("gate_up_done" in event for event, _ in told)


# ---- PyTorch on the same weights -------------------------------------------------------------


def test_rows_are_those_of_the_checkpoint_and_go_back_where_they_were() -> None:
    arrays = tensors(packed("cuda", "bfloat16"))
    before = {n: x.clone() for n, x in arrays.items()}
    checkpoint = RandomCheckpoint(CONFIG)

    def own(*names: str) -> Any:
        return torch.from_numpy(np.concatenate(
            [checkpoint.tensor(n).astype(np.float32) for n in names]))

    with moe_torch.as_rows(arrays, CONFIG) as plain:
        for k in range(CONFIG.layers):
            at, expert = f"layers.{k}", f"layers.{k}.experts.5"
            assert torch.equal(plain["w_qkv"][k].float(), own(f"{at}.wq", f"{at}.wk", f"{at}.wv"))
            assert torch.equal(plain["w_gate_up"][k][5].float(),
                               own(f"{expert}.w_gate", f"{expert}.w_up"))
            assert torch.equal(plain["w_down"][k][5].float(), own(f"{expert}.w_down"))
            assert torch.equal(plain["w_router"][k].float(), own(f"{at}.router"))
        assert torch.equal(plain["head"][0].float(), own("head"))
        assert plain["w_down"][0].data_ptr() == arrays["w_down"].data_ptr()
    assert all(torch.equal(arrays[n], x) for n, x in before.items())


@pytest.mark.full
def test_a_step_of_torch_gives_our_logits() -> None:
    """Ours on threads; theirs from arrays as a GPU takes them."""
    batch, context = 3, 20
    theirs, ours = (decoder.Model(CONFIG, layout, "bfloat16", "cpu") for layout in ("cuda", "cpu"))
    for model, layout in ((theirs, "cuda"), (ours, "cpu")):
        model.arrays |= {n: x for n, x in tensors(packed(layout, "bfloat16")).items()
                         if "norm" not in n}
    cache = decoder.Cache(theirs, batch, context + 1)
    arguments = {**cache.decode(), **ours.arrays}
    with moe_torch.as_rows(theirs.arrays, CONFIG) as plain, torch.no_grad():
        peer = moe_torch.ExpertDecoder(plain, cache, moe_torch.eager(CONFIG))
        logits = peer.logits()
    program = llama(CONFIG, Weights("cpu", et.bf16), tokens=batch)
    et.compile(program, target="cpu")(**arguments)
    assert moe_torch.apart(arguments["logits"], logits) < 0.05
    assert not decoder.wrong(lambda: None, arguments, 1)


# ---- a whole run -----------------------------------------------------------------------------


class Stub:
    """Chooses the largest of logits that are always the same, or gives rows that are right."""

    backend = None
    interface = SimpleNamespace(dims=())

    def __init__(self, rows: Any = None) -> None:
        self.rows = rows

    def bind(self, **arguments: Any) -> Any:
        def step(stream: object) -> None:
            arguments["active"].fill_(6)
            if self.rows is not None:
                arguments["result"].copy_(self.rows(len(arguments["result"])))
                return
            torch.manual_seed(0)
            arguments["logits"].copy_(torch.randn(arguments["logits"].shape))
            arguments["chosen"].copy_(arguments["logits"].argmax(dim=1))

        return step

    def synchronize(self) -> None:
        """Nothing runs."""

    def close(self) -> None:
        """Nothing to free."""


@contextmanager
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    def timed(run: Any, samples: int, each: int = 1) -> list[float]:
        run()
        return [2e3] * samples

    def made(wanted: Any, folder: Path, env: Any) -> Made:
        broken = "64_push" in "_".join(wanted.words())
        return Made(folder / "_".join(wanted.words()), 1.0, error="no room" if broken else "")

    layers = partial(moe_chain.Layers, "cpu")
    right: dict[int, Any] = {}

    def rows(tokens: int) -> Any:
        if tokens not in right:
            some = layers()
            right[tokens] = moe_torch.reference(CONFIG, layers_of(some.weights), some.given(tokens))
        return right[tokens]

    def loaded(found: Made) -> Stub:
        if found.error:
            raise RuntimeError(found.error)
        layered = found.folder.name.rpartition("_")[2] in moe_program.SCHEDULES
        return Stub(rows if layered else None)

    monkeypatch.setitem(PRESETS, moe.MODEL, CONFIG)
    for place, name, value in (
        (moe, "Model", partial(decoder.Model, device="cpu")), (moe_chain, "LAYERS", CONFIG.layers),
        (moe_chain, "Layers", layers), (decoder, "here", lambda: None),
        (moe_chain, "here", lambda: None), (decoder, "gpu_us", timed), (moe_chain, "gpu_us", timed),
        (moe, "measure_read", lambda bench: (4000.0, None)),
        (decoder, "workspace_bytes", lambda backend, arguments: 3_000_000),
        (decode.gc, "collect", lambda: 0), (kernels, "make", made), (Made, "load", loaded),
    ):
        monkeypatch.setattr(place, name, value)
    yield


def test_a_whole_run_has_all_rows_and_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without Triton, whose rows are then failures that say so."""
    monkeypatch.setitem(sys.modules, "moe_triton", None)
    args = moe.parse(("--quick", "--out", str(tmp_path), "--batch", "1", "--batch", "16"))
    context = {"gpu": "a GPU", "versions": {"driver": "1"}}
    bench = result_merge.MergeBench("moe", tmp_path, True, context)
    with no_gpu(monkeypatch):
        moe.measure(bench, args)
    rows = json.loads((tmp_path / "moe.json").read_text())
    ours = [r for r in rows if r.get("engine") == "eventtensor"]
    assert [(r["name"], r["batch"]) for r in ours] == [
        ("decode", 1), ("decode", 16), *(("chain", n) for n in (1, 8, 32, 64))]
    assert not any("error" in r for r in ours)
    first, many = ours[:2]
    assert first["must"] == 2.0 and many["must"] == pytest.approx(1.3 * many["floor"], rel=0.2)
    assert first["experts"] == 6 and first["weight_bytes"] < many["floor"] * 4e9
    failed = {(r["name"], r.get("engine"), r.get("schedule")) for r in rows if "error" in r}
    assert failed == {("decode", "torch graph", None), ("chain", "triton graph", None),
                      ("schedule", None, "push")}
    compared = [r for r in rows if r["name"] == "schedule" and r["batch"] == 8]
    assert [r["schedule"] for r in compared] == list(moe_program.SCHEDULES)
    assert compared[-1]["over_best"] == 0
    page = performance_doc.page(tmp_path)
    for title in ("with experts, ms", "Layers of experts alone", "schedules of experts"):
        assert title in page, title
    assert "| 64 | 1000 | 0 |" in page  # auto, and how far it is off


def test_weight_bytes_are_those_of_the_experts_used() -> None:
    c = PRESETS["qwen3-30b-a3b"]
    one = 3 * 2 * 2048 * 768
    assert decoder.weight_bytes(c, 9) - decoder.weight_bytes(c, 0) == 9 * one
    assert decoder.weight_bytes(c, 128 * 48) == 2 * (30_532_122_624 - 151936 * 2048
                                                     - 97 * 2048 - 96 * 128)


def test_every_part_is_a_process_that_gets_the_other_words(monkeypatch: Any) -> None:
    seen = []
    monkeypatch.setattr(moe, "part", lambda name, words: seen.append((name, words)) or 0)
    monkeypatch.setattr(sys, "argv", ["moe.py", "--only", "chain", "--quick", "--only",
                                      "schedules", "--batch", "8"])
    with pytest.raises(SystemExit) as ended:
        moe.main()
    assert ended.value.code == 0
    assert seen == [(n, ["--quick", "--batch", "8"]) for n in ("chain", "schedules")]
