"""What is installed: one extra has the packages of every command, and all who name it agree."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib import metadata

from tools import release

PROJECT = tomllib.loads((release.ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
NAMED = re.compile(r"(?:eventtensor|\.)\[([a-z,]+)\]")


def distributions(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w.-]", r)[0].lower().replace("_", "-") for r in requirements}


def imported() -> set[str]:
    """The distributions that modules import at once, or by `need`."""
    found = set[str]()
    for path in release.SOURCES.rglob("*.py"):
        tree = ast.parse(path.read_text())
        for node in (*tree.body, *(n for n in ast.walk(tree) if isinstance(n, ast.Call))):
            match node:
                case ast.Import(names=names):
                    found |= {n.name for n in names}
                case ast.ImportFrom(module=str(module), level=0):
                    found.add(module)
                case ast.Call(func=ast.Name(id="need"), args=[ast.Constant(value=str(name))]):
                    found.add(name)
    tops = {name.partition(".")[0] for name in found} - set(sys.stdlib_module_names)
    known = metadata.packages_distributions()
    return {d.lower().replace("_", "-") for top in tops - {"eventtensor"} for d in known[top]}


def test_one_extra_has_what_every_command_imports() -> None:
    needed = imported()
    assert {"numpy", "uvicorn", "llguidance", "typer"} <= needed
    given = distributions(PROJECT["dependencies"] + EXTRAS["llm"])
    assert needed - {"pydantic-core"} <= given  # pydantic asks for its very version


def test_names_of_earlier_releases_give_the_same() -> None:
    assert EXTRAS["models"] == EXTRAS["serve"] == ["eventtensor[llm]"]


def test_the_makefile_and_documents_name_extras_that_are_there() -> None:
    pages = [
        "Makefile",
        *(
            str(p.relative_to(release.ROOT))
            for p in (
                *release.ROOT.glob("*.md"),
                *release.ROOT.glob("docs/**/*.md"),
                *release.SOURCES.rglob("*.py"),
            )
        ),
    ]
    named = {
        (page, extra)
        for page in pages
        if page != "CHANGELOG.md"
        for list_of in NAMED.findall((release.ROOT / page).read_text())
        for extra in list_of.split(",")
    }
    assert {extra for _, extra in named} <= EXTRAS.keys()
    assert {("Makefile", "llm"), ("README.md", "llm")} <= named
    assert not {n for n in named if n[1] in ("models", "serve")}
