"""The seeded-fault corpus: every real fault is refuted with the right kind, tasks and a witness
that replays; every legal mutant is proved. Brute force at small dims says which is which."""

from __future__ import annotations

from functools import cache

import pytest

from eventtensor.analysis.check import verify
from eventtensor.compiler import State
from tests.support.backends import passes
from tests.support.bases import BASES
from tests.support.corpus import CASES
from tests.support.mutate import Mutant, legal, mutants
from tests.support.verdict import Subject, complaints

# Into so many tests the mutants of a program go, for workers to share.
PARTS = 4


@cache
def state_of(base: str) -> State:
    state = passes(BASES[base].make())
    assert state.report is not None and state.report.ok, str(state.report)
    return state


def part_of(base: str, part: int) -> list[Mutant]:
    """Every PARTS-th mutant: neighbours are alike, so that parts take about as long."""
    derived = state_of(base).derived
    assert derived is not None
    return list(mutants(state_of(base).program, derived))[part::PARTS]


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("base", BASES)
def test_mutants_of_events_are_judged_as_brute_force_judges_them(base: str, part: int) -> None:
    state = state_of(base)
    found = []
    for m in part_of(base, part):
        report = verify(state.program, m.derived)
        for what in complaints(Subject(state, m.derived, BASES[base].dims), report):
            found.append(f"{m.name}: {what}")
    assert not found, "\n".join(found)


@pytest.mark.parametrize("base", BASES)
def test_mutants_that_only_wait_or_count_more_are_proved(base: str) -> None:
    state = state_of(base)
    assert state.derived is not None
    for m in legal(state.derived):
        subject = Subject(state, m.derived, BASES[base].dims[:4])
        assert not subject.truth(), m.name
        report = verify(state.program, m.derived)
        assert report.ok, f"{m.name}\n{report}"


@pytest.mark.parametrize("name", CASES)
def test_changed_programs_are_judged_as_brute_force_judges_them(name: str) -> None:
    case = CASES[name]
    state = passes(case.make())
    assert state.report is not None and state.derived is not None
    subject = Subject(state, state.derived, case.dims)
    kinds = {f.kind for f in subject.truth()}
    assert set(case.kinds) <= kinds and bool(case.kinds) == bool(kinds)
    found = list(complaints(subject, state.report))
    assert not found, "\n".join(found)


def test_the_corpus_has_hundreds_of_programs_and_most_are_faulty() -> None:
    made = {b: [m for part in range(PARTS) for m in part_of(b, part)] for b in BASES}
    assert len(CASES) + sum(map(len, made.values())) >= 400
    faulty = sum(bool(c.kinds) for c in CASES.values())
    for b, found in made.items():
        faulty += sum(bool(Subject(state_of(b), m.derived, BASES[b].dims).truth()) for m in found)
    assert faulty >= 200
