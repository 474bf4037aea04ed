"""Bounds isl's work. A question that exceeds its budget is answered `unproved`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import islpy as isl

# isl operations
DETOUR = 3 * 10**6  # to find a path that saves a wait; tenths of a second
CLOSURE = 3 * 10**5  # for a transitive closure; exact ones take a third of it
QUESTION = 2 * 10**8  # for one question of the proof; ten seconds
DERIVATION = 2 * 10**9  # for the derivation, or for the proof between questions


class OutOfBudget(Exception):
    """The budget is spent."""


@contextmanager
def budget(operations: int) -> Iterator[None]:
    """Raise OutOfBudget if the block takes more than `operations` steps of isl. After an inner
    block the outer one counts from 0 again."""
    context = isl.DEFAULT_CONTEXT
    outer = context.get_max_operations()
    context.reset_operations()
    context.set_max_operations(operations)
    try:
        yield
    except isl.Error as e:
        if _is_spent():
            raise OutOfBudget from e
        raise
    finally:
        context.reset_operations()
        context.set_max_operations(outer)


def _is_spent() -> bool:
    """True if no operation is left. The error itself may differ: a text that isl stops reading has
    a syntax error."""
    try:
        isl.Set("{ [x] : exists (y : 2y = x and 0 <= y <= 1) }").coalesce().lexmin()
    except isl.Error:
        return True
    return False
