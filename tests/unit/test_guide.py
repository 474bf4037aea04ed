"""Every Python block of the guide and the README runs, and prints what the page says it prints.

Blocks of one section share a namespace and count lines as one file, `guide.py`, which in the guide
starts with the block of its first section. A text block right after a Python block is its output.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import zip_longest
from pathlib import Path

import pytest

import eventtensor as et
from eventtensor import errors

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/guide.md").read_text()
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A Python block and the output that the page shows for it (None: none shown)."""

    code: str
    output: str | None


@dataclass(frozen=True)
class Section:
    page: str
    title: str
    blocks: tuple[Block, ...]

    def __str__(self) -> str:
        return f"{self.page}: {self.title}"


def sections(page: str, text: str) -> Iterator[Section]:
    for part in re.split(r"^(?=##? )", text, flags=re.MULTILINE):
        blocks = tuple(blocks_of(part))
        if blocks:
            yield Section(page, part.split("\n", 1)[0].lstrip("# "), blocks)


def blocks_of(text: str) -> Iterator[Block]:
    found = list(FENCE.finditer(text))
    for fence, after in zip_longest(found, found[1:]):
        if fence[1] == "python":
            near = after is not None and not text[fence.end() : after.start()].strip()
            yield Block(fence[2], after[2] if near and after[1] == "text" else None)


def guide() -> list[Section]:
    """The first section is what the others start from."""
    first, *rest = sections("guide", GUIDE)
    return [first, *(replace(s, blocks=first.blocks + s.blocks) for s in rest)]


def readme() -> list[Section]:
    return list(sections("README", (ROOT / "README.md").read_text()))


def wrong_outputs(section: Section) -> list[tuple[list[str], list[str]]]:
    """Run a section: pairs of shown and printed lines that differ. Places in errors are lines of
    the blocks put together."""
    names: dict[str, object] = {}
    line, wrong = 0, []
    for block in section.blocks:
        code = compile("\n" * line + block.code, "guide.py", "exec")
        line += block.code.count("\n")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        shown, got = tidy(block.output or ""), tidy(printed.getvalue())
        if block.output is not None and shown != got:
            wrong.append((shown, got))
    return wrong


def tidy(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").split("\n")]


@pytest.mark.parametrize("section", [*guide(), *readme()], ids=str)
def test_examples_run_and_print_what_the_page_shows(section: Section):
    assert not wrong_outputs(section)


def test_every_section_of_the_guide_has_an_example_and_every_fence_a_language():
    titles = re.findall(r"^##? (.*)$", FENCE.sub("", GUIDE), flags=re.MULTILINE)
    assert [s.title for s in guide()] == titles
    assert {m[1] for m in FENCE.finditer(GUIDE)} == {"python", "text"}


def test_the_guide_names_every_function_option_and_variable_and_only_real_errors():
    functions = set(et.__all__) - {"CheckReport", "DType", "Kernel", "Options"}
    assert {f for f in functions if not re.search(rf"\bet\.{f}\b", GUIDE)} == set()
    assert {f.name for f in fields(et.Options)} <= set(re.findall(r"^\| `(\w+)` \|", GUIDE, re.M))
    settings = set(re.findall(r'e\.get\("(\w+)"', (ROOT / "src/eventtensor/config.py").read_text()))
    assert settings - {"HOME"} == set(re.findall(r"`(ET_\w+|CXX)`", GUIDE))
    assert set(re.findall(r"\bET\d{3}\b", GUIDE)) <= {c.code for c in errors.catalogue()}


def test_files_that_the_guide_points_to_are_there():
    files = re.findall(r"`(examples/\w+\.py)`", GUIDE)
    links = [f"docs/{name}" for name in re.findall(r"\]\((\w+\.md)\)", GUIDE)]
    assert files and links
    assert all((ROOT / name).is_file() for name in files + links)


def test_a_wrong_output_and_a_failing_block_are_noticed():
    page = "## S\n```python\nprint(1)\n```\n```text\n{}\n```\n```python\nassert {}\n```\n"
    (right,) = sections("page", page.format(1, True))
    (other,) = sections("page", page.format(2, True))
    (fails,) = sections("page", page.format(1, False))
    assert wrong_outputs(right) == [] and wrong_outputs(other) == [(["2"], ["1"])]
    with pytest.raises(AssertionError):
        wrong_outputs(fails)
