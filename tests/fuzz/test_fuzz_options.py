"""Random words after every command: an error of ours or of the command line, never a traceback."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from support.fuzz import survives
from typer.testing import CliRunner

from eventtensor.cli import commands, typed
from eventtensor.engine.params import SamplingParams
from eventtensor.errors import BadPrompt

WORDS = ("nan", "inf", "-inf", "-1", "0", "1", "1.5", "1e400", "9" * 40, "9" * 5000, "", " ", "x",
         "\udcff", "a" * 10000, "random:tiny-llama", "random:", "random:tiny-llama?seed=x", "..",
         "/dev/null", "/nowhere/x", "http://[", "1,2", ",", "a:b", ":", "--", "--no-such")


def every_command() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Words and click's command."""
    def below(words: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
        inner = getattr(command, "commands", None)
        if inner is None:
            yield words, command
            return
        for name, one in inner.items():
            yield from below((*words, name), one)

    yield from below((), typer.main.get_command(commands.app))


COMMANDS = list(every_command())


def test_every_number_of_every_command_has_a_range() -> None:
    sampling = set(SamplingParams.__dataclass_fields__)
    for words, command in COMMANDS:
        for p in command.params:
            if p.type.name in ("integer", "float"):
                assert p.name in (sampling if words == ("generate",) else typed._RANGES), words


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def reached(*_: object, **__: object) -> None:
        raise BadPrompt("reached")

    for name in ("serving.LLM", "speaking.LLM", "benching.LLM", "benching.startup",
                 "benching.server", "benching.under_load", "compiling.compiled"):
        monkeypatch.setattr(f"eventtensor.cli.{name}", reached)


def test_words_after_commands(nothing_runs, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)

    def value(p: Any, rng: random.Random) -> str:
        choices = getattr(p.type, "choices", None)
        if choices and rng.random() < 0.7:
            return str(rng.choice([getattr(c, "value", c) for c in choices]))
        return rng.choice(WORDS)

    def typed_words(rng: random.Random) -> list[str]:
        words, command = rng.choice(COMMANDS)
        out = list(words)
        for p in command.params:
            if p.param_type_name == "argument":
                out += [value(p, rng)] * (rng.random() < 0.95)
            elif p.required or rng.random() < 0.3:
                out += [rng.choice(p.opts), *([] if p.is_flag else [value(p, rng)])]
        return out

    def case(rng: random.Random) -> None:
        words = typed_words(rng)
        done = CliRunner().invoke(commands.app, words)
        if not isinstance(done.exception, SystemExit | None):
            raise AssertionError(f"{words}") from done.exception
        assert done.exit_code in (0, 1, 2) and "Traceback" not in done.output, words
        assert not list(tmp_path.iterdir()), words

    survives(case)
