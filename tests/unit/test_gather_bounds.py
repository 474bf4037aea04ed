"""Gathers by indices that the body makes: proved where no data can take them out of their tile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import eventtensor as et

INSIDE: dict[str, Callable[[Any], Any]] = {
    "argsort": lambda x: et.gather(x, et.argsort(-x)),
    "places": lambda x: et.gather(et.argsort(x), et.argsort(et.argsort(x))).cast(et.f32),
    "topk": lambda x: et.gather(x, et.topk(x, 8)[1][::-1]),
    "argmax": lambda x: x + et.gather(x, et.argmax(x.reshape(2, 4), axis=1) * 2).sum(),
    "partner": lambda x: et.gather(x, et.iota(8) ^ 4),
    "masked": lambda x: et.gather(x, x.cast(et.i32) & 7),
    "chosen": lambda x: et.gather(x, et.where(x > 0, et.iota(8), 0)),
    "joined": lambda x: et.gather(x, et.concat([et.iota(4), et.iota(4) + 4])),
}
OPEN: dict[str, Callable[[Any], Any]] = {
    "value": lambda x: et.gather(x, x.cast(et.i32)),
    "past_argsort": lambda x: et.gather(x, et.argsort(x) + 1),
    "partner_outside": lambda x: et.gather(x, et.iota(8) ^ 8),
    "negative_mask": lambda x: et.gather(x, x.cast(et.i32) & -8),
    "chosen": lambda x: et.gather(x, et.where(x > 0, et.iota(8), 8)),
    "wrapped": lambda x: et.gather(x, (et.iota(8) - 1).cast(et.u8) + 1),
}


def status(make: Callable[[Any], Any]) -> str:
    p = et.Program("picked")
    x, out = p.input("x", (8,), et.f32), p.output("out", (8,), et.f32)

    @et.task
    def pick(x, out):
        out[:] = make(x)

    p.call(pick, grid=(), reads=x, writes=out)
    return et.check(p).status


@pytest.mark.parametrize("name", INSIDE)
def test_indices_that_no_data_takes_outside_are_proved(name: str) -> None:
    assert status(INSIDE[name]) == "proved"


@pytest.mark.parametrize("name", OPEN)
def test_indices_that_may_lie_outside_are_an_obligation(name: str) -> None:
    assert status(OPEN[name]) == "conditional"
