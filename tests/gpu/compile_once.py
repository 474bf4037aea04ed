"""Compiles one generated source into the cache. A child of variants.py: a compiler that crashes on
a large debug build takes this process with it, not the tests."""

from __future__ import annotations

import sys
from pathlib import Path

from eventtensor.config import environment
from eventtensor.runtime.cuda.cuda_build import build_cubin


def main(source: str, name: str, architecture: str) -> None:
    build_cubin(Path(source).read_text(), name, architecture, environment())


if __name__ == "__main__":
    main(*sys.argv[1:])
