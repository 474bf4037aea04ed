"""Bodies that say where the largest of a row lie, and those that only look like it."""

from __future__ import annotations

from typing import Any

import pytest

import eventtensor as et
from eventtensor.ir.best import Best, best_of
from tests.support.tables import find, ranked


def found(kind: Any = find, parts: int = 3, size: int = 64, **options: Any) -> Best | None:
    return best_of(ranked(parts, size, kind, **options).build(), "at")


@et.task
def backwards(scores, at):
    whole = scores[1, :] + scores[0, :]
    at[:] = et.topk(whole[None, :], 8)[1][0]


@et.task
def some(scores, at):
    whole = scores[0, :] + scores[1, :]
    at[:] = et.topk(whole[None, :], 8)[1][0]


@et.task
def scaled(scores, at):
    at[:] = et.topk((scores[0, :] * 2.0)[None, :], 8)[1][0]


@et.task
def begin_of_rows(scores, at):
    whole = scores[0, 0:32] + scores[1, 0:32]
    at[:] = et.topk(whole[None, :], 8)[1][0]


@et.task
def of_each_row(scores, at):
    at[:] = et.topk(scores, 4)[1].reshape(8)


@et.task
def twice(scores, at):
    at[0:4] = et.topk(scores, 4)[1][0]
    at[4:8] = et.topk(scores, 4)[1][0]


@et.task
def shifted(scores, at):
    at[:] = (et.topk(scores, 8)[1][0] + 1) % 64


@pytest.mark.parametrize(("parts", "size"), [(3, 64), (1, 128), (4, 256)])
def test_places_of_the_largest_sums_of_parts(parts: int, size: int) -> None:
    best = found(parts=parts, size=size)
    assert best is not None and best.region.tensor == "scores"
    assert (best.parts, best.size, best.apart, best.count) == (parts, size, size, 8)


def test_rows_may_lie_an_even_distance_apart() -> None:
    best = found(gap=2)
    assert best is not None and (best.size, best.apart) == (64, 66)


@pytest.mark.parametrize("options", [
    {"gap": 1},  # lanes look at pairs
    {"row": 16}, {"row": 40}, {"first": 8, "row": 16},  # what is found first is number 0
    {"added": True},
])
def test_rows_that_are_not_just_the_places_are_not_found(options: dict[str, Any]) -> None:
    assert found(**options) is None


@pytest.mark.parametrize(("kind", "parts", "size"), [
    (backwards, 2, 64), (some, 3, 64), (scaled, 1, 64), (begin_of_rows, 2, 64),
    (of_each_row, 2, 64), (twice, 1, 64), (shifted, 1, 64),
    (find, 1, 48), (find, 1, 96), (find, 5, 256),  # lanes look at pairs, at so many in all
])
def test_others_are_not_found(kind: Any, parts: int, size: int) -> None:
    assert found(kind, parts, size) is None
