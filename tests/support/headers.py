"""A compiler for the tests that does not parse the standard headers again for each kernel."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

INCLUDE = re.compile(r"^#include <.*>$", re.MULTILINE)
DEVICE = Path(__file__).parents[2] / "src/eventtensor/device"
WRAPPER = Path(__file__).with_name("precompiled_cxx.sh")
# Headers that only one kind of processor has.
PROCESSORS = {"#include <immintrin.h>": "__x86_64__", "#include <arm_neon.h>": "__aarch64__"}


def compiler_with_headers(folder: Path) -> dict[str, str]:
    """What the environment needs for it; nothing if the compiler is no GCC."""
    real = os.environ.get("CXX", "c++")
    try:
        shown = subprocess.run([real, "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return {}
    if "Free Software Foundation" not in shown.stdout:
        return {}
    folder.mkdir(exist_ok=True)
    fresh = folder / f"{os.getpid()}.h"
    fresh.write_text(_headers())
    fresh.replace(folder / "kernel.h")
    return {"CXX": str(WRAPPER), "ET_TEST_CXX": real, "ET_TEST_HEADERS": str(folder)}


def _headers() -> str:
    found = {line for path in DEVICE.glob("*.h") for line in INCLUDE.findall(path.read_text())}
    return "".join(
        f"#if defined({PROCESSORS[line]})\n{line}\n#endif\n" if line in PROCESSORS else f"{line}\n"
        for line in sorted(found)
    )
