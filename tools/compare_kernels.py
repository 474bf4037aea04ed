"""Compares the machine code of some kernels between two commits, to show that a change of names, of
folders or of a pass has left them as they were. No GPU is needed:

    python tools/compare_kernels.py BASE [HEAD] [--kernel NAME ..]

Only what runs is compared: the sections .text of the cubins. Other names of variables and other
lines leave them equal. HEAD is the working tree if it is left out. The status is 1 if a kernel
differs."""

from __future__ import annotations

import argparse
import os
import struct
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KERNEL_SET = Path("tools") / "kernel_set.py"


def sections(cubin: bytes) -> dict[str, bytes]:
    """The code of a cubin (ELF, 64 bits, little endian) by the name of its section."""
    if cubin[:6] != b"\x7fELF\x02\x01":
        raise ValueError("this is no cubin")
    (at,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names_in = struct.unpack_from("<HHH", cubin, 0x3A)
    heads = [struct.unpack_from("<IIQQQQ", cubin, at + k * size) for k in range(count)]
    names_at = heads[names_in][4]
    found = {}
    for name_at, _, _, _, begin, length in heads:
        first = names_at + name_at
        name = cubin[first : cubin.index(b"\0", first)].decode()
        if name.startswith(".text"):
            found[name] = cubin[begin : begin + length]
    return found


def unpack(commit: str, folder: Path) -> Path:
    """The files of a commit, with today's set of kernels if it has none of its own."""
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True)
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")
    own = folder / KERNEL_SET
    if not own.exists():
        own.write_text((ROOT / KERNEL_SET).read_text())
    return folder


def build(tree: Path, out: Path, names: list[str]) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    return subprocess.Popen([sys.executable, str(tree / KERNEL_SET), str(out), *names],
                            env=environment, cwd=tree)


def verdict(base: Path, head: Path) -> tuple[bool, str]:
    """Whether two builds of a kernel run the same code, and in words."""
    if not (base.exists() and head.exists()):
        return False, "only in one of them"
    a, b = sections(base.read_bytes()), sections(head.read_bytes())
    if a == b:
        return True, "equal"
    sizes = [sum(map(len, x.values())) for x in (a, b)]
    return False, f"DIFFERS: {sizes[0]:,} and {sizes[1]:,} bytes of code"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("base")
    parser.add_argument("head", nargs="?")
    parser.add_argument("--kernel", action="append", default=[], dest="names")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        base = unpack(asked.base, folder / "base")
        head = ROOT if asked.head is None else unpack(asked.head, folder / "head")
        builds = [build(tree, folder / out, asked.names)
                  for tree, out in ((base, "old"), (head, "new"))]
        if [b.wait() for b in builds] != [0, 0]:
            return 2
        kernels = sorted({p.stem for p in folder.glob("*/*.cubin")})
        same = True
        for kernel in kernels:
            equal, text = verdict(*(folder / x / f"{kernel}.cubin" for x in ("old", "new")))
            same &= equal
            print(f"{kernel:24} {text}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
