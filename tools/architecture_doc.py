"""Prints into ARCHITECTURE.md what the compiler makes of examples/row_sum.py.

    python tools/architecture_doc.py          # writes the blocks anew
    python tools/architecture_doc.py --check  # says whether they are what the compiler prints

A comment `printed: STAGE: PART ..` stands before each block. A part is a section of a plan, a body
in kernel IR, or a function of a source; without one the block has all of the stage.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import eventtensor as et

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "ARCHITECTURE.md"
BLOCK = re.compile(
    r"^<!-- printed: ([\w ]+?)(?:: ([\w ]+))? -->\n```(\w+)\n.*?^```$", re.DOTALL | re.MULTILINE
)


def stages() -> dict[str, str]:
    from examples.row_sum import row_sum

    program = row_sum()
    return {
        "program": str(program.build()),
        "plan for threads": et.explain(program),
        "plan for cuda": et.explain(program, target="cuda", device="h200"),
        "kernel_ir for cuda": et.explain(program, target="cuda", device="h200", stage="kernel_ir"),
        "source for threads": et.explain(program, stage="source"),
        "source for cuda": et.explain(program, target="cuda", device="h200", stage="source"),
    }


def part_of(text: str, name: str) -> str:
    """The section of a plan, or the function of a source, that has this name."""
    lines = text.splitlines()
    at = next(
        k
        for k, line in enumerate(lines)
        if line == f"{name}:" or re.match(rf"body {name}\(|[^ ].*\b{name}\(.*\{{$", line)
    )
    end = next((k for k in range(at + 1, len(lines)) if not lines[k].startswith(" ")), len(lines))
    return "\n".join(lines[at : end + 1] if lines[at].endswith("{") else lines[at:end])


def printed(page: str) -> str:
    """The page with every block as the compiler prints it now."""
    known = stages()

    def block(found: re.Match[str]) -> str:
        stage, parts, language = found.groups()
        texts = [part_of(known[stage], p) for p in parts.split()] if parts else [known[stage]]
        text = "\n\n".join(t.strip("\n") for t in texts)
        return found[0].split("\n", 1)[0] + f"\n```{language}\n{text}\n```"

    return BLOCK.sub(block, page)


def main() -> int:
    page = PAGE.read_text()
    new = printed(page)
    if "--check" in sys.argv:
        return int(new != page)
    PAGE.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
