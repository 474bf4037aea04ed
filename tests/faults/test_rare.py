"""Faults that small sizes do not show: a proof by trying would miss them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import eventtensor as et
from eventtensor.analysis.check import verify
from eventtensor.analysis.check_report import CheckReport
from eventtensor.ir.expr import Const, Dim, Var, compare, maximum, mod
from tests.support import bases
from tests.support.backends import passes
from tests.support.mutate import guarded
from tests.support.verdict import Subject, complaints

N = Dim("n", 1, 4096)
SMALL = tuple({"n": n} for n in range(1, 40))
BIG_TILES: dict[str, Callable[[], et.Program]] = {
    "halo": lambda: bases.halo(first=512, second=512),
    "two_tiles": lambda: bases.two_tiles(first=512, second=768),
}


def judged(program: et.Program, call: str, cond: Any, dims: Any) -> CheckReport:
    """The waits of `call` happen only where `cond` holds; brute force sees no fault at `dims`, and
    the report's witness is confirmed."""
    state = passes(program)
    assert state.report is not None and state.report.ok and state.derived is not None
    derived = guarded(state.derived, call, cond)
    subject = Subject(state, derived, dims)
    assert not subject.truth()
    report = verify(state.program, derived)
    found = list(complaints(subject, report))
    assert not found, "\n".join(found)
    return report


def witness_dims(report: CheckReport) -> dict[str, int]:
    assert report.status == "refuted" and report.problems[0].witness is not None
    return dict(report.problems[0].witness.dims)


@pytest.mark.parametrize(("name", "call"), [("halo", "edge"), ("two_tiles", "fine")])
def test_a_wait_that_is_missing_only_at_the_largest_size_is_found(name: str, call: str) -> None:
    report = judged(BIG_TILES[name](), call, compare("<=", N, Const(4095)), SMALL)
    assert witness_dims(report) == {"n": 4096}


def test_a_wait_that_is_missing_at_one_remainder_of_96_is_found() -> None:
    rest = mod(N, 96)
    other = maximum(compare("<=", N, Const(1)), maximum(
        compare("<=", rest, Const(0)), compare("<=", Const(2), rest)))
    report = judged(bases.row_sum(), "final", other, SMALL)
    assert witness_dims(report) == {"n": 97}


@pytest.mark.parametrize("r", [1, 2, 3])
def test_a_wait_that_is_missing_after_the_first_iteration_is_found(r: int) -> None:
    once = tuple({"n": n, "L": depth} for n in (1, 5, 9) for depth in range(1, r + 1))
    early = compare("<=", Var("l"), Const(r - 1))
    report = judged(bases.ring(r, chain=False, second=4), "up", early, once)
    assert witness_dims(report) == {"L": r + 1, "n": 1}
    assert {str(p.kind) for p in report.problems} == {"write-after-read", "write-write"}


def test_an_index_that_leaves_its_tensor_only_in_long_ones_is_found() -> None:
    def read(b: Any, i: Any) -> Any:
        return b[i * 4 : i * 4 + 4, i // 341]

    report = passes(bases.row_sum(read=read)).report
    assert report is not None and [str(p.kind) for p in report.problems] == ["out-of-range"]
    assert witness_dims(report) == {"n": 3 * 341 * 4 + 1}


def test_the_proof_does_not_depend_on_the_largest_size() -> None:
    """Nothing is enumerated: the largest size appears only in the line that declares it."""
    for make in (bases.halo, bases.two_tiles, bases.triangle, bases.substitution, bases.in_place):
        texts = []
        for most in (64, 4096, 10**6, 10**9):
            state = passes(make(most=most))
            assert state.report is not None and state.report.ok and state.plan is not None
            texts.append((str(state.plan), str(state.program).replace(f"n in 1..{most}\n", "")))
        assert len(set(texts)) == 1
