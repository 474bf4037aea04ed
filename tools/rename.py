"""Renames by the tables of `tools/names/`: identifiers, files and folders, wherever they are named.

    python tools/rename.py                # does what the tables say and the tree does not yet
    python tools/rename.py engine device  # these tables alone
    python tools/rename.py --check        # lists what still, or again, has an old name

A table has rows [[names]] (old, new, and `in`: the globs of paths where the old word had this
meaning; everywhere if left out) and rows [[files]] (old, new: paths of files or folders). With
`lint = false` no check holds the row, because the word has another meaning there, too.
Imports, includes and paths in texts follow a file. Words are whole identifiers. Doing it twice
changes nothing. What only a reader can decide is not in the tables."""

from __future__ import annotations

import argparse
import ast
import posixpath
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
TABLES = ROOT / "tools" / "names"
# Records of what was, and what others have written.
LEFT = (
    "benchmarks/results/*",
    "tools/names/*",
    "CHANGELOG.md",
    "docs/tuning/*",
    "constraints.txt",
    "tests/clients/*.txt",
    "LICENSE",
    "NOTICE",
)
INCLUDES = "src/eventtensor/device"  # what compilers get as -I
SUFFIXES = {".py", ".h", ".cpp", ".cu", ".cuh", ".md", ".toml", ".yml", ".yaml", ".txt", ".html",
            ".mjs", ".sh", ".jinja", ""}


@dataclass(frozen=True)
class Name:
    old: str
    new: str
    globs: tuple[str, ...]
    lint: bool

    @property
    def pattern(self) -> re.Pattern[str]:
        begin = r"(?<![A-Za-z0-9_])" if re.match(r"\w", self.old) else ""
        end = r"(?![A-Za-z0-9_])" if re.search(r"\w$", self.old) else ""
        return re.compile(begin + re.escape(self.old) + end)

    def applies(self, path: str) -> bool:
        return not self.globs or matches(path, self.globs)


@dataclass(frozen=True)
class Move:
    old: str
    new: str


def matches(path: str, globs: Iterable[str]) -> bool:
    """A star goes over folders, so that `src/*` is all below src."""
    return any(re.fullmatch(re.escape(g).replace(r"\*", ".*"), path) for g in globs)


def read_tables(names: list[str]) -> tuple[list[Name], list[Move]]:
    files = [TABLES / f"{n}.toml" for n in names] if names else sorted(TABLES.glob("*.toml"))
    words, moves = [], []
    for file in files:
        table = tomllib.loads(file.read_text())
        words += [Name(r["old"], r["new"], tuple(r.get("in", ())), r.get("lint", True))
                  for r in table.get("names", ())]
        moves += [Move(r["old"], r["new"]) for r in table.get("files", ())]
    return words, moves


def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"],
                            cwd=ROOT, check=True, capture_output=True, text=True)
    return [p for p in listed.stdout.splitlines() if (ROOT / p).is_file()]


def readable(path: str) -> bool:
    return PurePosixPath(path).suffix in SUFFIXES and not matches(path, LEFT)


# ---- files -----------------------------------------------------------------------------------


def moved(path: str, moves: list[Move]) -> str:
    """Where a path lies when all moves are done, each after those before it."""
    for m in moves:
        if path == m.old or path.startswith(m.old + "/"):
            path = m.new + path[len(m.old):]
    return path


def module_of(path: str) -> str | None:
    """The dotted name of a Python file, as programs import it."""
    if not path.endswith(".py"):
        return None
    parts = list(PurePosixPath(path).with_suffix("").parts)
    if parts[0] == "src":
        parts = parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def done_before(files: list[str], moves: list[Move]) -> list[str]:
    """What was moved earlier, by its old path: others may still name it."""
    whole = [m.old for m in moves if not (ROOT / m.old).exists() and PurePosixPath(m.old).suffix]
    inside = [m.old + p[len(m.new) :] for m in moves for p in files if p.startswith(m.new + "/")]
    return whole + inside


def do_moves(moves: list[Move]) -> None:
    before = tracked()
    after = {p: moved(p, moves) for p in [*done_before(before, moves), *before]}
    earlier = {new: old for old, new in after.items() if old != new}
    modules = {a: b for p, q in after.items() if (a := module_of(p)) and (b := module_of(q))}
    packages = {".".join(m.split(".")[:k]) for m in modules for k in range(1, m.count(".") + 2)}
    for old, new in after.items():
        if old != new and (ROOT / old).exists():
            (ROOT / new).parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["git", "mv", "-k", old, new], cwd=ROOT, check=True)
            if (ROOT / old).exists():
                (ROOT / old).rename(ROOT / new)
    for old in before:
        new = after[old]
        if readable(new):
            file = ROOT / new
            text = changed = file.read_text()
            if new.endswith(".py"):
                was = earlier.get(old, old) if old == new else old
                changed = follow_imports(
                    changed,
                    module_of(old) or "",
                    module_of(new) or "",
                    module_of(was) or "",
                    old.endswith("__init__.py"),
                    modules,
                    packages,
                )
            if PurePosixPath(new).suffix in (".h", ".cuh", ".cu", ".cpp"):
                changed = follow_includes(changed, old, new, earlier.get(old, old), after)
            changed = follow_paths(changed, new, after, modules)
            if changed != text:
                file.write_text(changed)


def follow_imports(
    text: str,
    old: str,
    new: str,
    earlier: str,
    is_package: bool,
    modules: dict[str, str],
    packages: set[str],
) -> str:
    """The imports of a module, by the names that modules have now; relative ones stay so.

    One that leads nowhere from `old` was written when the module was `earlier`."""
    lines = text.splitlines(keepends=True)
    renamed: dict[str, str] = {}
    found = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ImportFrom)]
    for node in sorted(found, key=lambda n: -n.lineno):
        known = modules.keys() | packages
        places = [source_of(node, base_of(m, is_package)) for m in (old, earlier)]
        source = next((p for p in places if p in known), places[0])
        groups: dict[str, list[str]] = {}
        is_renamed = False
        for alias in node.names:
            whole = f"{source}.{alias.name}"
            kept = f" as {alias.asname}" if alias.asname else ""
            if whole in modules:  # a module itself
                package, _, name = modules[whole].rpartition(".")
                groups.setdefault(package, []).append(name + kept)
                is_renamed = is_renamed or name != alias.name
                if name != alias.name and not alias.asname:
                    renamed[alias.name] = name
            else:
                groups.setdefault(modules.get(source, source), []).append(alias.name + kept)
        if source not in modules and source not in packages:
            continue
        here = new if is_package else new.rpartition(".")[0]
        parts = []
        for target, names in groups.items():
            shown = relative(target, here) if node.level else target
            parts.append(f"from {shown} import {', '.join(names)}")
        unchanged = (
            len(groups) == 1
            and (
                "." * node.level + (node.module or "")
                == (relative(next(iter(groups)), here) if node.level else next(iter(groups)))
            )
            and not is_renamed
        )
        if unchanged:
            continue
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        head = lines[first].encode()[:node.col_offset].decode()
        tail = lines[last].encode()[node.end_col_offset or 0:].decode()
        indent = head if not head.strip() else "; "
        lines[first:last + 1] = [head + f"\n{indent}".join(parts) + tail]
    text = "".join(lines)
    for a, b in renamed.items():
        text = re.sub(rf"(?<![\w.]){a}(?=\.)", b, text)
    return text


def source_of(node: ast.ImportFrom, base: str) -> str:
    """The module that an import in the package `base` names."""
    for _ in range(node.level - 1):
        base = base.rpartition(".")[0]
    return ".".join(x for x in (base if node.level else "", node.module or "") if x)


def base_of(module: str, is_package: bool) -> str:
    return module if is_package else module.rpartition(".")[0]


def relative(target: str, here: str) -> str:
    a, b = target.split("."), here.split(".")
    same = 0
    while same < min(len(a), len(b)) and a[same] == b[same]:
        same += 1
    return "." * (len(b) - same + 1) + ".".join(a[same:])


def follow_includes(text: str, old: str, new: str, earlier: str, after: dict[str, str]) -> str:
    """What a file includes; if either of them moves, written from the include folder."""

    def follow(found: re.Match[str]) -> str:
        folders = [str(PurePosixPath(old).parent), INCLUDES, str(PurePosixPath(earlier).parent)]
        paths = [posixpath.normpath(posixpath.join(f, found[1])) for f in folders]
        path = next((p for p in paths if p in after), None)
        if path is None or (path == after[path] and old == new and path in paths[:2]):
            return found[0]
        goal = after[path]
        start = INCLUDES if goal.startswith(INCLUDES + "/") else str(PurePosixPath(new).parent)
        return f'#include "{posixpath.relpath(goal, start)}"'

    return re.sub(r'#include "([^"\n]+)"', follow, text)


def follow_paths(text: str, own: str, after: dict[str, str], modules: dict[str, str]) -> str:
    """Dotted names of modules, paths, and names of files that the tree has once."""
    stems: dict[str, set[str]] = {}
    for old in after:
        stems.setdefault(PurePosixPath(old).name, set()).add(old)
    for a, b in sorted(modules.items(), key=lambda pair: -len(pair[0])):
        if a != b and a.count(".") and a in text:
            text = re.sub(rf"(?<![\w.]){re.escape(a)}(?!\w)", b, text)
    for old, new in after.items():
        if old == new:
            continue
        a, b = PurePosixPath(old), PurePosixPath(new)
        for k in range(len(a.parts) - 1):  # the whole path, and without its first folders
            tail = "/".join(a.parts[k:])
            if tail in text:
                same = a.parts[:k] == b.parts[:k]
                goal = "/".join(b.parts[k if same else -(len(a.parts) - k) :])
                text = re.sub(rf"(?<![\w/]){re.escape(tail)}(?!\w)", goal, text)
        if a.name != b.name and len(stems[a.name]) == 1 and a.name in text:
            text = re.sub(rf"(?<![\w/.]){re.escape(a.name)}(?!\w)", b.name, text)
    return text


# ---- words -----------------------------------------------------------------------------------


def do_names(words: list[Name]) -> None:
    for path in tracked():
        if not readable(path):
            continue
        file = ROOT / path
        text = changed = file.read_text()
        for w in words:
            if w.applies(path) and w.old in changed:
                changed = w.pattern.sub(w.new.replace("\\", r"\\"), changed)
        if changed != text:
            file.write_text(changed)


def old_names(words: list[Name], moves: list[Move]) -> list[str]:
    """What has an old name, in words that say where and what it is called."""
    files = tracked()
    held = [w for w in words if w.lint]
    found = [f"{p} is called {moved(p, [m])}" for m in moves for p in files if moved(p, [m]) != p]
    for path in files:
        if readable(path):
            text = (ROOT / path).read_text()
            here = [w for w in held if w.old in text and w.applies(path)]
            for number, line in enumerate(text.splitlines(), 1) if here else ():
                found += [f"{path}:{number}: '{w.old}' is called '{w.new}'"
                          for w in here if w.pattern.search(line)]
    return found


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__,
                                        formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("tables", nargs="*")
    arguments.add_argument("--check", action="store_true")
    options = arguments.parse_args()
    words, moves = read_tables(options.tables)
    if options.check:
        found = old_names(words, moves)
        print("\n".join(found))
        return 1 if found else 0
    do_moves(moves)
    do_names(words)
    return 0


if __name__ == "__main__":
    sys.exit(main())
