"""The assumptions of the kernel about changed logits are checked before a launch."""

from __future__ import annotations

import numpy as np
import pytest

from eventtensor.errors import BoundViolated, DimOutOfRange
from eventtensor.llm.model.step_limits import MAX_BIASES
from eventtensor.llm.runner.batch_arrays import LogitsChange, RunnerLimits, check_changes

LIMITS = RunnerLimits(2000, 8, 4, 4, 32, 16, 4, 2)
NONE = np.zeros(0, np.int32)


@pytest.mark.parametrize(("wrong", "error", "said"), [
    ({"bias": {2000: 1.0}}, BoundViolated, "beyond 0 to 1999"),
    ({"bias": {-1: 1.0}}, BoundViolated, "beyond 0 to 1999"),
    ({"bias": {3: float("nan")}}, BoundViolated, "biases"),
    ({"bias": {3: float("inf")}}, BoundViolated, "biases"),
    ({"bias": dict.fromkeys(range(MAX_BIASES + 1), 1.0)}, DimOutOfRange, "1025 tokens"),
    ({"allowed": np.zeros(3, np.uint8)}, DimOutOfRange, "bits"),
    ({"repetition": 0.0}, BoundViolated, "penalties"),
    ({"history": np.zeros(33, np.int32)}, DimOutOfRange, "33 tokens"),
])
def test_a_change_that_cannot_be_is_refused(wrong, error, said):
    with pytest.raises(error, match=said):
        check_changes([LogitsChange(**{"history": NONE, "prompt": 0} | wrong)], LIMITS)


def test_the_largest_change_is_taken():
    bias = dict.fromkeys(range(MAX_BIASES), -100.0)
    history = np.zeros(32, np.int32)
    check_changes([LogitsChange(NONE, 0), LogitsChange(history, 3, bias=bias)], LIMITS)
