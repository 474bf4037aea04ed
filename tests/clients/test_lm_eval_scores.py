"""lm-eval finds, by the server, the scores that transformers finds for the same tasks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cpu import reference
from eventtensor.llm.text.tokenizer import Tokenizer
from eventtensor.llm.weights.model_source import open_model
from tests.clients.client_environment import command, variables
from tests.clients.client_folder import CLIENTS, clients
from tests.serve.server_process import running

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

MAX_LENGTH = 256  # of score_tasks.py
_SCRIPT_S = 400


def write_tokenizer(tokenizer: Tokenizer, folder: Path) -> Path:
    """As transformers reads it."""
    folder.mkdir()
    (folder / "tokenizer.json").write_text(tokenizer.definition)
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", **tokenizer.special}))
    return folder


def data_of(folder: Path, task: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{task}.jsonl").read_text().splitlines()]


class Reference:
    def __init__(self, model: Any) -> None:
        self._model, self.tokenizer = reference(model, "f32"), model.tokenizer
        (self.first,) = self.tokenizer.encode(self.tokenizer.special["bos_token"])

    def score(self, tokens: Sequence[int], count: int) -> tuple[float, bool]:
        """Of the last `count` tokens."""
        with torch.no_grad():
            logits = self._model(torch.tensor([list(tokens)])).logits[0, -count - 1 : -1]
        ends = torch.tensor(list(tokens[-count:]))
        logp = torch.log_softmax(logits.double(), -1)[torch.arange(count), ends]
        return float(logp.sum()), bool((logits.argmax(-1) == ends).all())

    def continuation(self, context: str, text: str) -> tuple[float, bool]:
        whole, begin = (self.tokenizer.encode(t) for t in (f"{context} {text}", context))
        return self.score(whole, len(whole) - len(begin))

    def rolling(self, text: str) -> float:
        """Windows of tokens that are scored once each, with one token before them; the last one
        has as many before it as fit."""
        tokens, width = self.tokenizer.encode(text), MAX_LENGTH - 2
        found, _ = self.score([self.first, *tokens[:width]], min(width, len(tokens)))
        for begin in range(width, len(tokens), width):
            end = min(begin + width, len(tokens))
            found += self.score(tokens[end - width - 1 : end], end - begin)[0]
        return found


@pytest.mark.full
def test_scores_are_those_of_transformers(tmp_path: Path) -> None:
    """By four ways to ask. The likeliest continuations are told exactly."""
    (client,) = [c for c in clients() if c.name == "lm_eval"]
    python, model = command(client)[0], open_model("smollm2")
    folder = write_tokenizer(model.tokenizer, tmp_path / "tokenizer")
    line = [sys.executable, "-m", "eventtensor.cli", "serve", "smollm2", "--target", "cpu",
            "--dtype", "f32", "--max-model-len", str(MAX_LENGTH), "--port", "0"]
    with running(line) as server:
        script = [python, str(CLIENTS / "lm_eval/score_tasks.py"), server.url, str(folder)]
        done = subprocess.run(script, env=variables(), cwd=tmp_path, capture_output=True,
                              text=True, timeout=_SCRIPT_S, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    theirs = Reference(model)
    choices = [[theirs.continuation(row["question"], text) for text in row["choices"]]
               for row in data_of(tmp_path, "local_choice")]
    rolling = [theirs.rolling(row["text"]) for row in data_of(tmp_path, "local_rolling")]
    assert {greedy for row in choices for _, greedy in row} == {True, False}
    for way, found in told.items():
        for ours, wanted in zip(found["local_choice"], choices, strict=True):
            for (logp, greedy), (their_logp, their_greedy) in zip(ours, wanted, strict=True):
                assert float(logp) == pytest.approx(their_logp, abs=1e-3), way
                assert (str(greedy) == "True") == their_greedy, way
        for (logp,), their_logp in zip(found["local_rolling"], rolling, strict=True):
            assert float(logp) == pytest.approx(their_logp, abs=1e-3), way
