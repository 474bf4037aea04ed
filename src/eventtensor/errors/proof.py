"""ET2xx: the proof."""

from __future__ import annotations

from collections.abc import Sequence

from .base import EventTensorError


class ProofError(EventTensorError):
    """`others` are further problems of the program, in a line each."""

    code, title = "ET200", "the program could not be proved"
    default_hint = "et.check(program) returns all problems with their witnesses"

    def __init__(
        self, message: str, *, place: str | None = None, hint: str | None = None,
        others: Sequence[str] = (),
    ) -> None:
        super().__init__(message, place=place, hint=hint)
        self.others = tuple(others)

    def __str__(self) -> str:
        head = super().__str__()
        if not self.others:
            return head
        count = f"{len(self.others)} more problem{'s' if len(self.others) > 1 else ''}:"
        return "\n".join([head, count, *(f"  {o}" for o in self.others)])


class UncoveredRead(ProofError):
    code, title = "ET201", "a read that no wait orders after its writer"
    default_hint = "add the missing wait, or leave waits= away so that it is derived"


class NoProducer(ProofError):
    code, title = "ET202", "a read of elements that nobody writes before"
    default_hint = "write them in an earlier call, or make the tensor an input or state"


class CountTooHigh(ProofError):
    code, title = "ET203", "a cell that expects more notifies than it gets (would hang)"
    default_hint = "lower count=, or check the notify maps"


class CountTooLow(ProofError):
    code, title = "ET204", "a cell that gets more notifies than it expects (would run early)"
    default_hint = "raise count=, or check the notify maps"


class IndexOutOfRange(ProofError):
    code, title = "ET205", "an index outside its tensor or event tensor"
    default_hint = "slices may overhang the upper end only; use padded() for halos"


class UnorderedWriters(ProofError):
    code, title = "ET206", "two unordered tasks write the same element"
    default_hint = "make the regions disjoint, use accumulates=, or order the tasks by an event"


class WriteAfterRead(ProofError):
    code, title = "ET207", "a write that may come before an earlier read has finished"
    default_hint = (
        "wait for the reader, or give the tensor one more copy (double-buffer it along the loop)"
    )


class EventCycle(ProofError):
    code, title = "ET208", "a wait for a task that does not come before it in program order"
    default_hint = "edges go forward: notify in an earlier call than the one that waits"


class UnboundedIndex(ProofError):
    code, title = "ET209", "an index read from a tensor that has no declared bound"
    default_hint = "declare the tensor with bound=(lo, hi)"


class Unproved(ProofError):
    code, title = "ET210", "something that could be neither proved nor refuted"
    default_hint = "state what you know of run-time data (bound=, monotone=, distinct=, p.fact)"


class UnequalExtents(ProofError):
    code, title = "ET211", "tile axes that are combined but may differ in extent"
    default_hint = "slice both sides to the same extent"


class TooFewElements(ProofError):
    code, title = "ET212", "an op that picks elements of an axis that may have too few"
    default_hint = "raise the min of the dim, slice whole tiles, or state a fact (p.fact) of data"


class NegativeExtent(ProofError):
    code, title = "ET213", "a tile in a body whose extent may be negative"
    default_hint = "raise the min of the dim, or use et.max(extent, 0)"


class ContradictoryFacts(ProofError):
    code, title = "ET215", "declared facts that no run-time data can satisfy"
    default_hint = "correct bound=, monotone=, distinct= or p.fact: a contradiction proves anything"


class Unassigned(ProofError):
    code, title = "ET220", "a task that may leave part of the region that it writes unassigned"
    default_hint = "declare the smaller region, assign the rest, or name the region in reads= too"


class WrittenTwice(ProofError):
    code, title = "ET225", "a task that writes one element through two of its arguments"
    default_hint = "make the regions of a task disjoint, or write one region that covers both"


class Unwritten(ProofError):
    code, title = "ET221", "an output with elements that no task writes"
    default_hint = "cover it: n.tiles(8) rather than n // 8; or declare it with partial=True"
