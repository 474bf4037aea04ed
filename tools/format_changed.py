"""Formats the lines that differ from a commit, and no others: by ruff and by clang-format.

python tools/format_changed.py                  # what is not committed
python tools/format_changed.py --base main      # what a branch changes
python tools/format_changed.py --check          # say it, and change nothing
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@")
CPP = (".h", ".cpp", ".cu", ".cuh")
KEPT = "tests/golden/"  # what the compiler has written
Lines = tuple[int, int]
WHOLE: Lines = (1, 1_000_000)


def changed(base: str, root: Path) -> dict[Path, list[Lines]]:
    """For each file the first and last lines that the working tree has and `base` has not."""
    new = _git(root, "ls-files", "--others", "--exclude-standard").splitlines()
    found = {root / name: [WHOLE] for name in new}
    path = Path()
    for line in _git(root, "diff", "--unified=0", "--diff-filter=AMR", base).splitlines():
        if line.startswith("+++ b/"):
            path = root / line.removeprefix("+++ b/")
        elif hunk := HUNK.match(line):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            if count:
                found.setdefault(path, []).append((first, first + count - 1))
    return {p: v for p, v in found.items() if not p.is_relative_to(root / KEPT)}


def formatted(path: Path, lines: Iterable[Lines]) -> str:
    """The file with these lines formatted. Backwards, since lines below them move."""
    text = path.read_text()
    if path.suffix == ".py":
        for first, last in sorted(lines, reverse=True):
            some = [] if (first, last) == WHOLE else ["--range", f"{first}-{last + 1}"]
            text = _run("ruff", "format", *some, "--stdin-filename", str(path), "-", text=text)
    elif path.suffix in CPP:
        ranges = [f"--lines={first}:{last}" for first, last in lines if (first, last) != WHOLE]
        text = _run("clang-format", *ranges, f"--assume-filename={path}", text=text)
    return text


def _run(tool: str, *words: str, text: str) -> str:
    """A tool of the environment that runs this."""
    command = [str(Path(sysconfig.get_path("scripts")) / tool), *words]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def _git(root: Path, *words: str) -> str:
    command = ["git", "-C", str(root), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", default="HEAD")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    asked = parser.parse_args()
    wrong = []
    for path, lines in changed(asked.base, asked.root.resolve()).items():
        if path.suffix != ".py" and path.suffix not in CPP:
            continue
        text = formatted(path, lines)
        if text != path.read_text():
            wrong.append(str(path.relative_to(asked.root.resolve())))
            if not asked.check:
                path.write_text(text)
    if wrong:
        said = "would be formatted" if asked.check else "formatted"
        sys.exit(f"{said}: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
