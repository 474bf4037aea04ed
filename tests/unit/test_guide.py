"""Every Python block of the guide and the README runs, and prints what the page says it prints.

Blocks of one section share a namespace and count lines as one file, `guide.py`, which in the guide
starts with the block of its first section. A ```text block right after a Python block is its output.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import eventtensor as et
from eventtensor import errors

ROOT = Path(__file__).parents[2]
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


def guide() -> list[Section]:
    """The first section is what the others start from."""
    first, *rest = sections("guide", (ROOT / "docs/guide.md").read_text())
    return [first, *(replace(s, blocks=first.blocks + s.blocks) for s in rest)]


def readme() -> list[Section]:
    return list(sections("README", (ROOT / "README.md").read_text()))


def blocks_of(text: str) -> Iterator[Block]:
    found = list(FENCE.finditer(text))
    for k, fence in enumerate(found):
        if fence[1] != "python":
            continue
        after = found[k + 1] if k + 1 < len(found) else None
        shown = None
        if after is not None and after[1] == "text" and not text[fence.end():after.start()].strip():
            shown = after[2]
        yield Block(fence[2], shown)


def run(section: Section) -> Iterator[tuple[Block, str]]:
    """Each block with what it prints; places in errors are lines of the blocks put together."""
    names: dict[str, object] = {}
    line = 0
    for block in section.blocks:
        code = compile("\n" * line + block.code, "guide.py", "exec")
        line += block.code.count("\n")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        yield block, printed.getvalue()


def tidy(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").split("\n")]


@pytest.mark.parametrize("section", [*guide(), *readme()], ids=str)
def test_examples_run_and_print_what_the_page_shows(section: Section):
    for block, printed in run(section):
        if block.output is not None:
            assert tidy(printed) == tidy(block.output)


def test_every_section_of_the_guide_has_an_example_and_every_fence_a_language():
    text = (ROOT / "docs/guide.md").read_text()
    titles = re.findall(r"^##? (.*)$", FENCE.sub("", text), flags=re.MULTILINE)
    assert [s.title for s in sections("guide", text)] == titles
    assert {m[1] for m in FENCE.finditer(text)} == {"python", "text"}


def test_the_guide_names_every_tile_function_and_only_real_errors():
    text = (ROOT / "docs/guide.md").read_text()
    functions = set(et.__all__) - {"CheckReport", "DType", "Kernel", "Options"}
    missing = {f for f in functions if not re.search(rf"\bet\.{f}\b", text)}
    assert not missing
    codes = {c.code for c in errors.catalogue()}
    assert set(re.findall(r"\bET\d{3}\b", text)) <= codes


def test_a_wrong_output_is_told_from_a_right_one():
    page = "## S\n```python\nprint(1)\n```\n```text\n2\n```\n"
    (section,) = sections("page", page)
    ((block, printed),) = run(section)
    assert (block.output, printed) == ("2\n", "1\n")
