"""Every `eventtensor ..` that a document shows is a command with options that it has."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest
import typer

from eventtensor.llm.cli.commands import app
from tools import release

PAGES = [*release.ROOT.glob("*.md"), *release.ROOT.glob("docs/**/*.md")]
SHOWN = re.compile(r"^(eventtensor .*)$|`(eventtensor [^`\n]+)`", re.MULTILINE)
MAKEFILE = re.compile(r"\$\(BIN\)/(eventtensor (?:.*\\\n)*.*)")


def shown() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        if page.name != "CHANGELOG.md":
            yield from ((page.name, a or b) for a, b in SHOWN.findall(page.read_text()))
    text = (release.ROOT / "Makefile").read_text()
    yield from (("Makefile", line.replace("\\\n", " ")) for line in MAKEFILE.findall(text))


def problem(line: str) -> str | None:
    """What the command line says of it, before the command would run. A command that is only named
    needs no arguments."""
    command, words = typer.main.get_command(app), shlex.split(line, comments=True)[1:]
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    if not words or words == ["--version"]:
        return None
    if hasattr(command, "commands"):
        return f"there is no command {words[0]}"
    try:
        command.make_context("eventtensor", words)
    except Exception as e:
        if not hasattr(e, "format_message"):
            raise
        return str(e.format_message())
    return None


@pytest.mark.parametrize(("page", "line"), sorted(set(shown())))
def test_a_command_that_is_shown_is_one(page: str, line: str) -> None:
    assert problem(line) is None


@pytest.mark.parametrize(
    "words",
    [
        "serve smollm2 --contxt 4096",
        "sing smollm2",
        "serve smollm2 --port x",
        "bench tea smollm2",
        "generate smollm2 --max-tokens 3",
        "serve smollm2 --dtype f64",
    ],
)
def test_a_wrong_command_is_noticed(words: str) -> None:
    assert problem(f"eventtensor {words}   # so") is not None


def test_the_first_screen_installs_generates_serves_and_asks() -> None:
    first = (release.ROOT / "README.md").read_text().split("\n## ")[0]
    for word in ("make demo", "eventtensor generate", "eventtensor serve", "from openai import"):
        assert word in first
    assert len(first.splitlines()) < 40
