"""Which thread of a role has which element of an index space.

Two loops with equal distributions over equal extents give an element to the same thread: what one
of them writes the other may read without a barrier.
"""

from __future__ import annotations

from dataclasses import dataclass

from .scopes import Scope


@dataclass(frozen=True, slots=True)
class Linear:
    """Element e, in row-major order, goes to thread e modulo the threads. With `each` every thread
    has that many, no more and no less."""

    each: int = 0

    @property
    def sharers(self) -> Scope:
        """The threads that have an element together."""
        return Scope.thread

    def __str__(self) -> str:
        return f"linear({self.each} each)" if self.each else "linear"


@dataclass(frozen=True, slots=True)
class HalfWarp:
    """Sixteen threads have an element together; element e, in row-major order, goes to half-warp e
    modulo their number. Warps run whole: both halves come to every convergence of a warp."""

    @property
    def sharers(self) -> Scope:
        return Scope.half_warp

    def __str__(self) -> str:
        return "half_warp"


Distribution = Linear | HalfWarp
