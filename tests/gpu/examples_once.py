"""Runs one example at two sizes, under a schedule and, when static, under every legal hand-off:
what test_sanitizer.py watches."""

from __future__ import annotations

import sys

from tests.gpu.arrays import EXAMPLES, assert_near, case
from tests.gpu.variants import cuda_kernel, plans, proved
from tests.support.backends import copies


def main(name: str, schedule: str) -> None:
    found = plans(proved(EXAMPLES[name].make(), schedule))
    for handoff, plan in found if schedule == "static" else [next(found)]:
        with cuda_kernel(plan) as kernel:
            for n in (33, 7):
                dims, arrays, wanted = case(name, n)
                got = copies(arrays)
                kernel.launch(dims, got)
                assert_near(name, got, wanted, f"{schedule}, {handoff}, n = {n}")


if __name__ == "__main__":
    main(*sys.argv[1:])
