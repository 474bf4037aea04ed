"""The bound on isl's work: whatever is cut short is out of budget, and a wrong text is not."""

from __future__ import annotations

import islpy as isl
import pytest

from eventtensor.analysis.sets.budget import OutOfBudget, budget

# A text whose constraints isl simplifies while it reads them.
CONJUNCTION = " and ".join(f"(a{k} < b{k} or a{k} > 2b{k} or a{k} = {k})" for k in range(8))
NAMES = ", ".join(f"a{k}, b{k}" for k in range(8))


def test_reading_that_is_cut_short_is_out_of_budget() -> None:
    with pytest.raises(OutOfBudget), budget(1000):
        isl.Set(f"{{ [{NAMES}] : {CONJUNCTION} }}")


def test_a_text_that_is_wrong_is_an_error_of_its_own() -> None:
    with pytest.raises(isl.Error, match="syntax"), budget(10**6):
        isl.Set("{ [x] : x <")


def test_work_within_the_budget_is_done() -> None:
    with budget(10**6):
        assert not isl.Set("{ [x] : 0 <= x < 5 }").is_empty()
