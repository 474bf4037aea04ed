"""The command `eventtensor` as a process: its output, and its errors as text."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import eventtensor as et
from eventtensor import SamplingParams, __version__
from eventtensor.errors import MissingPackage
from eventtensor.llm.cli import commands, generate_command
from eventtensor.llm.engine.request import Output
from eventtensor.llm.runner.bandwidth import Bandwidth
from eventtensor.llm.runner.runner import StepToken
from eventtensor.llm.weights.model_source import smollm2_path
from examples.row_sum import row_sum

ROOT = Path(__file__).parents[2]


def run(*words, cwd=ROOT):
    command = [sys.executable, "-m", "eventtensor.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=cwd,
                          check=False)


def refused(done, *shown):
    assert done.returncode != 0 and not done.stdout
    assert "Traceback" not in done.stderr
    for text in shown:
        assert text in done.stderr


def test_generate_gives_the_answer_on_stdout_and_the_speed_on_stderr():
    try:
        smollm2_path()
    except MissingPackage as e:
        pytest.skip(str(e))
    done = run("generate", "smollm2", "--prompt", "What is the capital of France?",
               "--target", "cpu", "--dtype", "f32", "--max-tokens", "20")
    assert (done.returncode, done.stdout) == (0, "The capital of France is Paris.\n"), done.stderr
    assert re.search(r"37 prompt tokens in \d+ ms; then [\d.]+ tokens/s, .* = \d+% of", done.stderr)
    raw = run("generate", "smollm2", "--prompt", "One, two, three, four,", "--raw", "--target",
              "cpu", "--dtype", "f32", "--max-tokens", "4")
    assert "five" in raw.stdout and "prompt tokens" in raw.stderr


class Slow:
    """A model that takes 1000 s to be built for each number of rows, 2 s to its first token, and
    half a second from token to token."""

    def __init__(self):
        self.target, self.limits = "cpu", SimpleNamespace(rows=128)
        self.engine = SimpleNamespace(runner=self)
        self.now, self.built, self.read = 0.0, [], []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def ready(self, rows, decode_only=False):
        self.now += 1000
        self.built.append((rows, decode_only))

    def stream(self, prompt, params):
        self.now += 1.5
        for _ in range(5):
            self.now += 0.5
            yield Output("x")

    def bytes_read(self, rows):
        self.read += rows
        return 10**9


def test_the_wait_for_a_compiler_is_not_in_the_speed(monkeypatch, capsys):
    slow, tokenizer = Slow(), SimpleNamespace(template=None, encode=lambda text: [1] * len(text))
    model = SimpleNamespace(tokenizer=tokenizer)
    monkeypatch.setattr(generate_command, "LLM", lambda model, **options: slow)
    monkeypatch.setattr(generate_command, "open_model", lambda name: model)
    monkeypatch.setattr(generate_command, "measure_bandwidth", lambda target: Bandwidth(4e9, "so"))
    monkeypatch.setattr(generate_command.time, "perf_counter", lambda: slow.now)
    chat = generate_command.ChatPrompt("x" * 200)
    said = generate_command.generate_text("m", chat, SamplingParams(max_tokens=9), "cpu", "f32",
                                          batch_invariant=False)
    assert "".join(said) == "xxxxx\n"
    assert "cpu, f32: 200 prompt tokens in 2000 ms; then 2.0 tokens/s, 1000 MB a step, " \
        "2.0 GB/s = 50% of the 4.0 GB/s that memory gives (so)" in capsys.readouterr().err
    assert slow.built == [(128, False), (1, True)] and slow.read == [StepToken(0, 0, 202)]


@pytest.mark.parametrize(("words", "wanted"), [
    ((), False), (("--batch-invariant",), True), (("--same-bits",), True)])
def test_batch_invariance_is_an_option_with_an_old_name(monkeypatch, words, wanted):
    asked = []

    def generate_text(name, chat, params, target, dtype, batch_invariant, artifact):
        asked.append(batch_invariant)
        return iter(["Hi"])

    monkeypatch.setattr(commands, "generate_text", generate_text)
    done = CliRunner().invoke(commands.app, ["generate", "smollm2", "--prompt", "x", *words])
    assert (done.exit_code, done.stdout, asked) == (0, "Hi", [wanted])


def test_models_are_listed():
    done = run("models")
    assert done.returncode == 0
    for name in ("smollm2", "random:qwen3-8b", "8.2 B", "GGUF"):
        assert name in done.stdout


@pytest.mark.parametrize(("words", "shown"), [
    (("smollm3", "--prompt", "x"), ("ET400", "smollm3", "hint")),
    (("random:tiny-llama", "--prompt", "x"), ("ET410", "no tokenizer")),
    (("smollm2", "--prompt", "x", "--top-p", "2"), ("ET500", "top_p is 2.0")),
    (("smollm2", "--prompt", "x", "--max-tokens", "0"), ("ET500", "max_tokens is 0")),
    (("smollm2", "--prompt", "x", "--temperature", "-1"), ("ET500", "temperature is -1")),
    (("smollm2", "--prompt", "x", "--target", "tpu"), ("tpu", "cuda")),
    (("smollm2", "--prompt", "x", "--top-k", "few"), ("--top-k",)),
    (("smollm2",), ("--prompt",)),
])
def test_what_makes_no_sense_is_refused_in_words(words, shown):
    refused(run("generate", *words), *shown)


@pytest.mark.parametrize(("words", "shown"), [
    (("smollm3",), ("ET400", "smollm3")),
    (("random:tiny-llama", "--port", "65536"), ("ET300", "port is 65536")),
    (("random:tiny-llama", "--max-model-len", "1"), ("ET300", "of 1 tokens")),
    (("random:tiny-llama", "--max-num-seqs", "65"), ("ET300", "65 requests")),
    (("random:tiny-llama", "--cache-gb", "0"), ("ET300", "cache_gb is 0")),
])
def test_a_server_that_makes_no_sense_is_refused_in_words(words, shown):
    refused(run("serve", *words), *shown)


def test_a_package_that_is_missing_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "eventtensor.llm.cli.server_launch", raising=False)
    monkeypatch.delitem(sys.modules, "eventtensor.llm.serve.server", raising=False)
    done = CliRunner().invoke(commands.app, ["serve", "random:tiny-llama"])
    assert done.exit_code == 1 and "ET401: uvicorn" in done.output
    assert "eventtensor[llm]" in done.output


def test_a_program_is_proved_and_explained():
    done = run("check", "examples/row_sum.py:row_sum")
    assert (done.returncode, "proved" in done.stdout) == (0, True)
    told = run("explain", "examples/row_sum.py:row_sum")
    assert told.returncode == 0 and "partial_sum" in told.stdout


def test_the_source_of_a_gpu_that_is_elsewhere_is_shown_byte_for_byte():
    words = ("explain", "examples/row_sum.py:row_sum", "--stage", "source")
    done = run(*words, "--device", "a100", "--target", "cuda")
    assert done.returncode == 0, done.stderr
    assert done.stdout == et.explain(row_sum(), target="cuda", device="a100", stage="source")
    assert run(*words, "--device", "a100", "--target", "auto").stdout == done.stdout
    refused(run(*words, "--device", "a100"), "ET300: device is 'a100', a GPU, but target is 'cpu'",
            "hint: target='cuda'")
    refused(run(*words, "--device", "a1000", "--target", "cuda"), "ET300: unknown device 'a1000'")


RACY = """
import eventtensor as et

@et.task
def copy(x, out):
    out[:] = x

def racy():
    p = et.Program("racy")
    a, c = p.input("a", (4,), et.f32), p.output("c", (4,), et.f32)
    p.call(copy, grid=(4,), reads=lambda i: a[0:4], writes=lambda i: c[0:4])
    return p
"""


def test_a_program_with_a_race_fails_the_check(tmp_path):
    (tmp_path / "racy.py").write_text(RACY)
    done = run("check", "racy.py:racy", cwd=tmp_path)
    assert done.returncode == 1 and "refuted" in done.stdout and "Traceback" not in done.stderr
    assert run("check", "racy:racy", cwd=tmp_path).stdout == done.stdout


@pytest.mark.parametrize(("name", "shown"), [
    ("examples/row_sum.py:nothing", "no function 'nothing'"), ("row_sum", "names no function"),
    ("examples/none.py:f", "no file examples/none.py"), ("nowhere:f", "no module nowhere"),
])
def test_a_program_that_is_not_there_is_refused_in_words(name, shown):
    refused(run("check", name), "ET300", shown)


def test_the_version_is_said_by_the_command():
    assert run("--version").stdout == f"eventtensor {__version__}\n"
