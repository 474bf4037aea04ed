"""What the documents say of the tree is so: paths, names, links, printed blocks, constants. Their
sentences are short.

Code is what stands between backquotes. Tables and blocks of code have no sentences.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path, PurePosixPath

import pytest

from eventtensor.compiler import PASSES
from eventtensor.targets.h200 import COSTS
from tests.support.definitions import defined_names
from tools import architecture_doc

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
DESIGN = [
    ROOT / "ARCHITECTURE.md",
    *sorted(ROOT.glob("docs/design/*.md")),
    *sorted(ROOT.glob("docs/targets/*.md")),
]
FENCE = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"`([^`]+)`")
NAME_IN_FILE = re.compile(r"`([\w./-]+\.\w+)`\s`([\w.]+)`")  # `path` `Name`
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
MOST_WORDS = 35
# Lists of fields, printed by a tool.
LISTS = {"docs/fields.md"}
# What a kernel's folder or the cache has, and the tree has not: its name is in the sources.
WRITTEN = {".json", ".cubin", ".cu", ".so"}


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


# ---- paths and names -------------------------------------------------------------------------


@cache
def tree() -> tuple[str, ...]:
    """Files and folders."""
    folders = ("docs", "examples", "src", "tests", "tools")
    inside = [p for folder in folders for p in (ROOT / folder).rglob("*")]
    return tuple(name_of(p) for p in (*ROOT.glob("*"), *inside) if "__pycache__" not in p.parts)


@cache
def words() -> frozenset[str]:
    """Of all sources but this one, with the names of files that programs write."""
    kinds = {".py", ".h", ".cpp", ".cuh"}
    sources = [ROOT / p for p in tree() if PurePosixPath(p).suffix in kinds]
    texts = [p.read_text() for p in sources if p != Path(__file__).resolve()]
    return frozenset(
        w for t in texts for w in (*re.findall(r"\w+", t), *re.findall(r"\w+\.[a-z]+\b", t))
    )


def is_path(span: str) -> bool:
    return re.fullmatch(r"[\w.-]+(/[\w.-]+)*/?", span) is not None and (
        "/" in span
        or bool(re.search(r"\.(py|cuh|h|cpp|md|toml)$", span))
        or PurePosixPath(span).suffix in WRITTEN
    )


def problem(span: str) -> str | None:
    """What is wrong with a piece of code in a document."""
    if is_path(span):
        goal = span.rstrip("/")
        there = (
            f"src/eventtensor/{goal}" in tree()
            or goal in tree()
            or ("/" not in span and goal in {PurePosixPath(p).name for p in tree()})
        )
        written = PurePosixPath(goal).suffix in WRITTEN and goal in words()
        return None if there or written else f"there is no {span}"
    name = re.sub(r"\(.*\)$", "", span)
    if not re.fullmatch(r"[A-Za-z_]\w*([.:]+[A-Za-z_]\w*)*", name):
        return None
    lost = [w for w in re.split(r"[.:]+", name) if w not in words()]
    return f"no source names {lost[0]}" if lost else None


@cache
def classes() -> dict[str, list[Path]]:
    """The files that define a class of this name."""
    found: dict[str, list[Path]] = {}
    for path in (ROOT / p for p in tree() if p.startswith("src/")):
        if path.suffix in {".py", ".h", ".cuh"}:
            for name in re.findall(r"^\s*(?:class|struct) (\w+)", path.read_text(), re.MULTILINE):
                found.setdefault(name, []).append(path)
    return found


def misplaced(text: str) -> Iterator[str]:
    """Names that are not defined in the file beside them, and fields that no class of this name
    has."""
    for match in NAME_IN_FILE.finditer(text):
        path, name = match.groups()
        file = ROOT / "src" / "eventtensor" / path
        if file.is_file() and not set(name.split(".")) <= defined_names(file):
            yield f"{path} does not define {name}"
    for span in SPAN.findall(text):
        owner, dot, field = re.sub(r"\(.*\)$", "", span).partition(".")
        if not (dot and owner[:1].isupper() and field.isidentifier()):
            continue
        if not any(field in defined_names(file) for file in classes().get(owner, [])):
            yield f"no class {owner} has {field}"


@pytest.mark.parametrize("page", DESIGN, ids=name_of)
def test_names_of_the_design_are_where_it_says(page: Path) -> None:
    assert not list(misplaced(FENCE.sub("", page.read_text())))


def test_a_misplaced_name_is_noticed() -> None:
    for text in (
        "`ir/plan.py` `Region`",
        "`CallPlan.no_field_of_it`",
        "`NoSuchClass.call`",
    ):
        assert list(misplaced(text))
    for text in ("`ir/plan.py` `Plan`", "`ir/plan.py`\n`Plan.call`", "`Plan.call`", "`x.y`"):
        assert not list(misplaced(text))


@pytest.mark.parametrize("page", DESIGN, ids=name_of)
def test_paths_and_names_of_the_design_are_in_the_tree(page: Path) -> None:
    spans = SPAN.findall(FENCE.sub("", page.read_text()))
    assert spans
    assert not [x for x in map(problem, spans) if x]


def test_a_wrong_path_or_name_is_noticed() -> None:
    for span in (
        "ir/no_such_file.py",
        "no_such_folder/",
        "no_such.json",
        "NoSuchClass",
        "Plan.no_field_of_a_plan",
    ):
        assert problem(span)
    for span in ("ir/plan.py", "tests/emulator", "kernel.cubin", "Plan.tagged_tensors", "n // 32"):
        assert problem(span) is None


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_link_leads_to_a_file(page: Path) -> None:
    links = [
        x.split("#")[0]
        for x in LINK.findall(FENCE.sub("", page.read_text()))
        if "://" not in x and not x.startswith(("#", "mailto:"))
    ]
    assert not [x for x in links if not (page.parent / x).exists()]


@pytest.mark.parametrize("folder", ["design", "tuning"])
def test_an_index_lists_every_page_of_its_folder(folder: str) -> None:
    index = ROOT / "docs" / folder / "README.md"
    pages = {p.name for p in index.parent.glob("*.md")} - {index.name}
    assert set(re.findall(r"\]\((\w[\w-]*\.md)\)", index.read_text())) == pages


# ---- what is printed, and what is measured ----------------------------------------------------


def test_the_architecture_shows_what_the_compiler_prints() -> None:
    page = architecture_doc.PAGE.read_text()
    assert len(architecture_doc.BLOCK.findall(page)) >= 4
    assert architecture_doc.printed(page) == page, "run python tools/architecture_doc.py"


def test_the_architecture_lists_the_passes_in_their_order() -> None:
    shown = re.findall(r"^\| `(\w+)` \|.*`[\w/]+\.py` \|$", architecture_doc.PAGE.read_text(), re.M)
    assert shown == [name for name, _ in PASSES]


def test_the_architecture_lists_the_layers_that_lint_checks() -> None:
    shown = re.findall(
        r"^\| `(\w+)(?:/|\.py)`.*\| [^|]*\|$", architecture_doc.PAGE.read_text(), re.M
    )
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = lint["contracts"][0]["layers"][::-1]
    known = [name.strip("() ") for layer in layers for name in layer.split("|")]
    assert len(shown) > 10 and shown == sorted(shown, key=known.index)


def test_a_constant_of_the_h200_is_read_where_its_row_says() -> None:
    page = (ROOT / "docs/targets/h200.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([^|]+) \|$", page, re.MULTILINE)
    assert len(rows) == sum(map(len, asdict(COSTS).values()))
    for name, readers in rows:
        paths = [ROOT / "src/eventtensor" / x for x in SPAN.findall(readers)]
        assert paths and all(re.search(rf"\.{name}\b", p.read_text()) for p in paths), name


def test_the_constants_of_the_h200_are_those_of_its_target() -> None:
    known = {k: v for costs in asdict(COSTS).values() for k, v in costs.items()}
    page = (ROOT / "docs/targets/h200.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+)( KB)? \|", page, re.MULTILINE)
    shown = {name: float(n) * (1024 if kb else 1) for name, n, kb in rows}
    assert shown == known


# ---- sentences --------------------------------------------------------------------------------


def sentences(text: str) -> Iterator[str]:
    text = re.sub(r"<!--.*?-->", "", FENCE.sub("", text), flags=re.DOTALL)
    lines = ["" if re.match(r"\s*(\||#)", line) else line for line in text.splitlines()]
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", "\n".join(lines)):
        plain = LINK.sub(lambda m: m[0].split("](")[0][1:], SPAN.sub("code", paragraph))
        for sentence in re.split(r"(?<=[.!?])[\"')*]*\s+", " ".join(plain.split())):
            if re.search(r"\w", sentence):
                yield sentence


def too_long(page: Path) -> list[str]:
    return [s for s in sentences(page.read_text()) if len(s.split()) > MOST_WORDS]


@pytest.mark.parametrize(
    "page",
    [p for p in PAGES if name_of(p) not in LISTS],
    ids=name_of,
)
def test_no_sentence_is_long(page: Path) -> None:
    assert not too_long(page)


def test_a_long_sentence_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("| " + "a " * 50 + "|\n\n```\n" + "b " * 50 + "\n```\n\nShort. " + "word " * 36)
    assert [len(s.split()) for s in too_long(page)] == [36]
