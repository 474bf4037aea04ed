"""What benchmarks/decode.py does without a GPU: which rows are chosen, how results of several runs
come together, children that answer or do not, and a whole run on kernels that are made up."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks import decode, decoder, kernels, result_merge, torch_compiled, torch_decode
from benchmarks.decode_cases import CASES, Chosen, parse
from benchmarks.kernels import Made, Wanted
from benchmarks.torch_compiled import CompiledPeer, Task, TooLong, limited, two_halves
from eventtensor.llm.model.model_presets import PRESETS
from tools import performance_doc

# ---- which rows ------------------------------------------------------------------------------


def chosen(*words: str) -> Chosen:
    found: Chosen = parse(words, "").chosen
    return found


def test_words_choose_rows_and_only_their_kernels() -> None:
    found = chosen("--only", "step", "--model", "llama-3.2-1b", "--batch", "1", "--batch", "64")
    assert [(c.batch, c.context) for c in found.cases()] == [(1, 128), (1, 1024), (64, 1024)]
    assert found.kernels() == (Wanted("llama-3.2-1b", 1),
                               Wanted("llama-3.2-1b", 64, decode_only=True))
    assert found.models_of_all() == ("llama-3.2-1b",)
    assert not (found.prompts() or found.compiled() or found.loaded())


def test_a_run_without_words_measures_everything() -> None:
    found = chosen()
    assert found.cases() == CASES and len([c for c in CASES if not c.sampled]) == 10
    assert [p.model for p in found.prompts()] == ["llama-3.2-1b", "qwen3-8b"]
    assert Wanted("llama-3.2-1b", 64, True, decode_only=True) in found.kernels()
    assert set(found.compiled()) <= set(found.kernels())  # what is compiled cold is used


def test_kernels_for_more_rows_than_a_case_has() -> None:
    found = chosen("--tokens", "batch", "--tokens", "16")
    one, sixteen, many = (next(c for c in CASES if c.batch == b) for b in (1, 16, 64))
    assert [w.tokens for w in found.kernels_of(one)] == [1, 16]
    assert [w.tokens for w in found.kernels_of(sixteen)] == [16]
    assert [w.tokens for w in found.kernels_of(many)] == [64]
    assert [w.tokens for w in found.kernels_of_prompt(found.prompts()[0])] == [16]


def test_a_quick_run_is_one_row() -> None:
    assert chosen("--quick").cases() == CASES[:1] and not chosen("--quick").prompts()
    assert len(chosen("--quick", "--model", "qwen3-8b").prompts()) == 1


# ---- results ---------------------------------------------------------------------------------


def test_a_run_replaces_its_own_rows_and_keeps_the_others(tmp_path: Path) -> None:
    def bench() -> result_merge.MergeBench:
        return result_merge.MergeBench("decode", tmp_path, True, {"gpu": "a GPU"})

    def rows() -> list[tuple[int, int, float | None]]:
        found = json.loads((tmp_path / "decode.json").read_text())
        return [(r["batch"], r["tokens"], r.get("median")) for r in found]

    first = bench()
    for batch, tokens in ((1, 1), (8, 8)):
        first.add("step", [2.0], "ms", model="m", batch=batch, tokens=tokens)
    second = bench()
    second.add("step", [3.0], "ms", model="m", batch=1, tokens=128)
    second.add("step", [1.0], "ms", model="m", batch=1, tokens=1, floor=0.5)
    assert rows() == [(1, 1, 1.0), (8, 8, 2.0), (1, 128, 3.0)]
    bench().fail("step", "wrong", model="m", batch=8, tokens=8)
    assert rows() == [(1, 1, 1.0), (8, 8, None), (1, 128, 3.0)]


# ---- children --------------------------------------------------------------------------------

TASK = Task("tiny-llama", 2, 8, 0.0, 1.0, 2, 1, 5, False, "cpu")


def peer(tmp_path: Path, text: str) -> CompiledPeer:
    found = CompiledPeer(TASK)
    found.script = tmp_path / "child.py"
    found.script.write_text(f"import sys, json, time\n{text}")
    return found


def test_a_peer_compiles_waits_and_measures(tmp_path: Path) -> None:
    text = """
print('a warning', file=sys.stderr)
print(json.dumps({'compile_s': 1.5}), flush=True)
print(json.dumps({'ms': [2.0, 3.0] if sys.stdin.readline() else []}), flush=True)"""
    found = peer(tmp_path, text)
    found.start()
    measured = found.measure()
    assert measured.ms == (2.0, 3.0) and measured.compile_s == 1.5 and not measured.refused
    found.close()


@pytest.mark.parametrize(("text", "said"), (
    ("print(json.dumps({'refused': 'too long'}))", "too long"),
    ("raise ValueError('no such thing')", "ended (1), after ValueError: no such thing"),
    ("print('{\"compile_s\": 1}', flush=True); sys.exit(3)", "ended (3), after nothing"),
    ("time.sleep(60)", "ended (-9), after nothing"),
))
def test_a_peer_that_fails_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.setattr(torch_compiled, "START_S", -4)  # and 5 to compile
    found = peer(tmp_path, text)
    found.start()
    assert found.measure().refused == said
    found.close()


def test_a_compile_that_takes_too_long_is_given_up() -> None:
    def wrapped() -> None:
        try:
            time.sleep(20)
        except TooLong as e:
            raise RuntimeError("the compiler fails") from e

    with pytest.raises(TooLong), limited(1):
        wrapped()
    with pytest.raises(KeyError), limited(1):
        raise KeyError


def test_a_backend_waits_between_compiling_and_the_first_run(
    capsys: pytest.CaptureFixture[str]
) -> None:
    seen = []
    backend = two_halves(lambda graph, inputs: seen.append("compiled") or "made",
                         lambda: seen.append(json.loads(capsys.readouterr().out)))
    assert backend(None, None) == "made"
    assert seen[0] == "compiled" and seen[1]["compile_s"] >= 0


@pytest.mark.parametrize(("model", "batch"), (("tiny-llama", 3), ("tiny-qwen3", 1)))
def test_the_step_of_torch_is_one_graph(model: str, batch: int) -> None:
    """As torch.compile needs it, with nothing that sends a tensor to the host."""
    weights = torch_decode.TorchWeights(PRESETS[model], "cpu")
    step = torch_decode.TorchDecoder(weights, batch, 20)
    with torch.no_grad():
        wanted = step.logits().argmax(dim=-1)
        torch._dynamo.reset()
        torch.compile(step.step, backend="eager", fullgraph=True)()
    assert torch.equal(step.chosen, wanted)


def test_torch_draws_only_what_top_p_leaves() -> None:
    weights = torch_decode.TorchWeights(PRESETS["tiny-llama"], "cpu")
    step = torch_decode.TorchDecoder(weights, 1, 4, temperature=0.5, top_p=0.6)
    logits = torch.log(torch.tensor([[0.2, 0.5, 0.3]])) * 0.5
    found = {int(step._choice(logits)[0]) for _ in range(200)}
    assert found == {1, 2}


def test_a_kernel_that_does_not_compile_is_an_error_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "child.py"
    script.write_text("""
import sys, json
if sys.argv[2] == '8': sys.exit('no room')
print('{"seconds": 3.0, "from_cache": false}')""")
    monkeypatch.setattr(kernels, "__file__", str(script))
    one, eight = Wanted("qwen3-8b", 1), Wanted("qwen3-8b", 8)
    with ThreadPoolExecutor(2) as pool:
        made = kernels.make_all((one, eight, one), tmp_path, pool)
    assert made[one].seconds == 3.0 and not made[one].error
    with pytest.raises(RuntimeError, match="no room"):
        made[eight].load()


# ---- a whole run -----------------------------------------------------------------------------


class FakeKernel:
    """Chooses the largest of logits that are always the same."""

    backend = None
    interface = SimpleNamespace(dims=())

    def bind(self, **arguments: Any) -> Any:
        def step(stream: object) -> None:
            torch.manual_seed(0)
            arguments["logits"].copy_(torch.randn(arguments["logits"].shape))
            arguments["chosen"].copy_(arguments["logits"].argmax(dim=1))

        return step

    def synchronize(self) -> None:
        """Nothing runs."""

    def close(self) -> None:
        """Nothing to free."""


@contextmanager
def no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in ("llama-3.2-1b", "qwen3-0.6b", "qwen3-8b"):
        tiny = PRESETS["tiny-llama" if name[0] == "l" else "tiny-qwen3"]
        monkeypatch.setitem(PRESETS, name, tiny)

    def timed(run: Any, samples: int, each: int = 1) -> list[float]:
        run()
        return [2e3] * samples

    def made(wanted: Wanted, folder: Path, env: Any) -> Made:
        broken = wanted == Wanted("qwen3-0.6b", 1)
        return Made(folder, 1.0, error="it does not compile" if broken else "")

    child = tmp_path / "peer.py"
    child.write_text("""
import json, sys
batch = json.loads(sys.argv[1])["batch"]
print(json.dumps({"refused": "no memory"} if batch == 64 else {"compile_s": 2}), flush=True)
sys.stdin.readline()
print('{"ms": [4.0]}', flush=True)""")
    for place, name, value in (
        (decode, "Model", partial(decoder.Model, device="cpu")),
        (torch_decode, "TorchWeights", partial(torch_decode.TorchWeights, device="cpu")),
        (decode, "here", lambda: None), (decoder, "here", lambda: None),
        (decode, "gpu_us", lambda run, samples, each: [2e3]), (decoder, "gpu_us", timed),
        (decode, "graph", lambda run, times: run),
        (decode, "measure_read", lambda bench: (4000.0, None)),
        (decoder, "workspace_bytes", lambda backend, arguments: 3_000_000),
        (torch.cuda, "synchronize", lambda: None), (decode.gc, "collect", lambda: 0),
        (kernels, "make", made), (Made, "load", _loaded), (CompiledPeer, "script", child),
    ):
        monkeypatch.setattr(place, name, value)
    yield


def _loaded(made: Made) -> FakeKernel:
    if made.error:
        raise RuntimeError(made.error)
    return FakeKernel()


def test_a_whole_run_has_all_rows_and_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = parse(("--quick", "--out", str(tmp_path), *(f"--only={p}" for p in
                 ("step", "sampled", "prefill", "load", "compile"))), "")
    context = {"gpu": "a GPU", "versions": {"driver": "1"}}
    bench = result_merge.MergeBench("decode", tmp_path, True, context)
    with no_gpu(tmp_path, monkeypatch):
        decode.measure(bench, args)
    rows = json.loads((tmp_path / "decode.json").read_text())
    ours = [r for r in rows if r.get("engine") == "eventtensor"]
    assert len(ours) == 12 and all("tokens" in r for r in ours)
    failed = [r for r in rows if "error" in r]
    assert [(r["model"], r["batch"], r["error"]) for r in failed] == [
        ("qwen3-0.6b", 1, "RuntimeError: it does not compile")
    ] * 2
    first, many = ours[0], ours[3]
    assert first["peers"] == {"torch graph": 2.0, "torch.compile": 4.0}
    assert many["peers"]["torch.compile"] == "refused: no memory"
    assert first["must"] == 0.68 and first["workspace_bytes"] == 3_000_000
    assert first["percent"] == pytest.approx(100 * first["floor"] / 2.0, abs=0.1)
    page = performance_doc.page(tmp_path)
    assert "| llama-3.2-1b | 64 | 1024 |" in page and "| refused | 128 | 3.0 MB |" in page
    for title in ("One step, ms", "draws its tokens", "A prompt", "without caches", "artifact"):
        assert title in page, title
