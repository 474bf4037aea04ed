"""Builds the source archive and the wheel, and tries the wheel where nothing of the tree is near.

    python tools/release.py --out dist              # build, look inside, install, run
    python tools/release.py --out dist --offline    # the same, with the packages that are here

It refuses a tag or a changelog that does not agree with the version (docs/releasing.md).
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src"
VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)

# What a newcomer does first: prove a program, and run it on both back ends that need no GPU.
FIRST_STEPS = """
from importlib.metadata import version
import numpy as np
from examples.row_sum import row_sum
import eventtensor as et

assert et.__file__.startswith({place!r}), et.__file__
assert et.__version__ == version("eventtensor")
assert et.check(row_sum()).ok
for target in ("interp", "cpu"):
    x, y = np.ones((33, 128), np.float32), np.empty(33, np.float32)
    et.compile(row_sum(), target=target)(a=x, c=y)
    assert (y == 128).all(), (target, y)
print("proved and run:", et.__version__)
"""


def version_of(sources: Path = SOURCES) -> str:
    (found,) = VERSION.findall((sources / "eventtensor/__init__.py").read_text())
    return str(found)


def disagreements(version: str, tags: Sequence[str], changelog: str) -> Iterator[str]:
    """What keeps a commit with these tags from being the release of this version."""
    releases = [t for t in tags if re.fullmatch(r"v\d.*", t)]
    if not releases:
        return
    if releases != [f"v{version}"]:
        yield f"the tags are {', '.join(releases)}, but the version is {version}"
    heading = rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$"
    if not re.search(heading, changelog, re.MULTILINE):
        yield f"CHANGELOG.md has no section `## [{version}] - DATE`"


def tags_here(root: Path = ROOT) -> list[str]:
    """The tags of the commit that is checked out; none outside a clone."""
    done = subprocess.run(["git", "-C", str(root), "tag", "--points-at", "HEAD"],
                          capture_output=True, text=True, check=False)
    return done.stdout.split() if done.returncode == 0 else []


def build(out: Path) -> tuple[Path, Path]:
    """The wheel, built from the source archive, and that archive."""
    subprocess.run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out),
                    str(ROOT)], check=True, stdout=sys.stderr)
    stem = f"eventtensor-{version_of()}"
    return out / f"{stem}-py3-none-any.whl", out / f"{stem}.tar.gz"


def left_out(wheel: Path) -> set[str]:
    """Files that a user needs and the wheel does not have."""
    wanted = {str(p.relative_to(SOURCES)) for p in SOURCES.rglob("*")
              if p.is_file() and "__pycache__" not in p.parts}
    info = f"eventtensor-{version_of()}.dist-info"
    wanted |= {f"{info}/licenses/{name}" for name in ("LICENSE", "NOTICE")}
    with zipfile.ZipFile(wheel) as packed:
        return wanted - set(packed.namelist())


def try_out(wheel: Path, place: Path, offline: bool) -> str:
    """What the first steps print, in an environment of its own."""
    venv.create(place, with_pip=False)
    python = place / "bin/python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet",
               "--disable-pip-version-check"]
    if offline:
        (path,) = place.glob("lib/python*/site-packages")
        outer = [p for p in sys.path if p.endswith("site-packages")]  # without what is editable
        (path / "packages_of_the_outer.pth").write_text("\n".join(outer) + "\n")
        command += ["--no-deps", "--no-index"]
    subprocess.run([*command, str(wheel)], check=True)
    code = FIRST_STEPS.format(place=str(place))
    clean = {**os.environ, "PYTHONPATH": str(ROOT), "ET_CACHE_DIR": str(place / "cache")}
    done = subprocess.run([python, "-c", code], cwd=place, env=clean, check=True,
                          stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--offline", action="store_true")
    asked = parser.parse_args()
    wrong = list(disagreements(version_of(), tags_here(), (ROOT / "CHANGELOG.md").read_text()))
    if wrong:
        sys.exit("\n".join(wrong))
    wheel, archive = build(asked.out)
    if missing := left_out(wheel):
        sys.exit(f"{wheel} lacks {', '.join(sorted(missing))}")
    print(try_out(wheel, asked.out / "tried", asked.offline))
    print(wheel, archive, sep="\n")


if __name__ == "__main__":
    main()
