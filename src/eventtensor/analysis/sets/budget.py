"""A bound on isl's work: a question that blows up is answered `unproved`, not waited for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import islpy as isl

DETOUR = 3 * 10**6  # operations for one look for a path that would save a wait; tenths of a second
CLOSURE = 3 * 10**5  # for a transitive closure: exact ones take a third, others ten times that
QUESTION = 2 * 10**8  # for one proof question; some ten seconds
DERIVATION = 2 * 10**9  # for the derivation, or what the proof does between questions


class OutOfBudget(Exception):
    """The bound was reached."""


@contextmanager
def budget(operations: int) -> Iterator[None]:
    """Raise OutOfBudget if the block needs more than `operations` steps of isl. After a block
    inside a block the outer one counts anew."""
    context = isl.DEFAULT_CONTEXT
    outer = context.get_max_operations()
    context.reset_operations()
    context.set_max_operations(operations)
    try:
        yield
    except isl.Error as e:
        if _reached():
            raise OutOfBudget from e
        raise
    finally:
        context.reset_operations()
        context.set_max_operations(outer)


def _reached() -> bool:
    """Whether no operation is left. The error itself may say something else: a text whose reading
    was cut short has a syntax error."""
    try:
        isl.Set("{ [x] : exists (y : 2y = x and 0 <= y <= 1) }").coalesce().lexmin()
    except isl.Error:
        return True
    return False
