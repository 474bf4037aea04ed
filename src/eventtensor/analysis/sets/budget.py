"""A bound on isl's work: a question that blows up is answered `unproved`, not waited for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import islpy as isl

QUESTION = 2 * 10**8  # operations for one proof question; some ten seconds
DERIVATION = 2 * 10**9


class OutOfBudget(Exception):
    """The bound was reached."""


@contextmanager
def budget(operations: int) -> Iterator[None]:
    """Raise OutOfBudget if the block needs more than `operations` steps of isl."""
    context = isl.DEFAULT_CONTEXT
    context.reset_operations()
    context.set_max_operations(operations)
    try:
        yield
    except isl.Error as e:
        if "maximal number of operations" in str(e):
            raise OutOfBudget from e
        raise
    finally:
        context.set_max_operations(0)
        context.reset_operations()
