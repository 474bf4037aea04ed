"""Random words after every command give a coded error or a usage error, never a traceback."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import typer
from typer.testing import CliRunner

from eventtensor.errors import BadPrompt
from eventtensor.llm.cli import commands, options
from eventtensor.llm.engine.sampling_params import SamplingParams
from tests.support.fuzz import survives

WORDS = ("nan", "inf", "-inf", "-1", "0", "1", "1.5", "1e400", "9" * 40, "9" * 5000, "", " ", "x",
         "\udcff", "a" * 10000, "random:tiny-llama", "random:", "random:tiny-llama?seed=x", "..",
         "/dev/null", "/nowhere/x", "http://[", "1,2", ",", "a:b", ":", "--", "--no-such")


@dataclass(frozen=True)
class Word:
    """An argument or option of a command, as its function declares it."""

    name: str
    kinds: tuple[Any, ...]
    is_argument: bool
    is_needed: bool

    @property
    def option(self) -> str:
        return f"--{self.name.replace('_', '-')}"


def every_command(app: typer.Typer, before: tuple[str, ...] = ()) -> Iterator[
        tuple[tuple[str, ...], list[Word]]]:
    for c in app.registered_commands:
        assert c.callback is not None
        name = c.name or c.callback.__name__.replace("_", "-")
        yield (*before, name), list(words_of(c.callback))
    for g in app.registered_groups:
        yield from every_command(g.typer_instance, (*before, g.name))


def words_of(function: Callable[..., Any]) -> Iterator[Word]:
    hints = get_type_hints(function, include_extras=True)
    for p in inspect.signature(function).parameters.values():
        kind, *more = get_args(hints[p.name])
        is_argument = any(isinstance(m, typer.models.ArgumentInfo) for m in more)
        yield Word(p.name, get_args(kind) or (kind,), is_argument, p.default is p.empty)


COMMANDS = list(every_command(commands.app))


def test_every_number_of_every_command_has_a_range() -> None:
    """Every number has a range here, or in SamplingParams."""
    sampling = set(SamplingParams.__dataclass_fields__)
    numbers = [(words, w.name) for words, found in COMMANDS for w in found
               if {int, float} & set(w.kinds)]
    assert len(numbers) > 20
    for words, name in numbers:
        known = sampling if words in (("generate",), ("chat",)) else set[str]()
        assert name in known | options._RANGES.keys(), (words, name)


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def reached(*_: object, **__: object) -> None:
        raise BadPrompt("reached")

    for name in ("server_launch.bind", "server_launch.LLM", "generate_command.LLM",
                 "chat_command.LLM", "bench_command.LLM", "bench_command.measure_startup",
                 "bench_command.run_server", "bench_command.measure_http_load",
                 "compile_command.compile_kernels"):
        monkeypatch.setattr(f"eventtensor.llm.cli.{name}", reached)


def test_words_after_commands(nothing_runs, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)

    def value(w: Word, rng: random.Random) -> str:
        names = [m.value for kind in w.kinds if issubclass(kind, StrEnum) for m in kind]
        return rng.choice(names) if names and rng.random() < 0.7 else rng.choice(WORDS)

    def typed_words(rng: random.Random) -> list[str]:
        words, known = rng.choice(COMMANDS)
        out = list(words)
        for w in known:
            if w.is_argument:
                out += [value(w, rng)] * (rng.random() < 0.95)
            elif w.is_needed or rng.random() < 0.3:
                out += [w.option, *([] if bool in w.kinds else [value(w, rng)])]
        return out

    def case(rng: random.Random) -> None:
        words = typed_words(rng)
        done = CliRunner().invoke(commands.app, words)
        if not isinstance(done.exception, SystemExit | None):
            raise AssertionError(f"{words}") from done.exception
        assert done.exit_code in (0, 1, 2) and "Traceback" not in done.output, words
        assert not list(tmp_path.iterdir()), words

    survives(case)
