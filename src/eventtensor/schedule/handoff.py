"""How each edge is realised on the device: a hand-off by the user's word or by cost, with a reason.

Pre: a proved program and its plan. Post: one Handoff for each wait of a call, in the order of the
plan; all of them legal, taken together.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..analysis.derive import Derived
from ..analysis.event_maps import Events, EventUse
from ..errors import BadOption
from ..ir.interval import nonnegative, numeric_bounds
from ..ir.plan import Handoff, HandoffKind, Plan
from ..ir.products import argument_of, product_of
from ..ir.program import PlacedCall
from ..ir.tensor import tile_shape
from ..targets.cost_model import HandoffCosts
from ..targets.target import CudaTarget, Feature
from .again import AgainQuestion, Found
from .bulk_operands import bulk_operand, feeds_product
from .flags import FlagQuestion
from .handoff_names import Asked
from .index_table import NO_TABLE, TableQuestion
from .tile_ownership import call_of, not_on_one_worker

KINDS = ("auto", *(k.value for k in HandoffKind))


def decide(
    plan: Plan, derived: Derived, events: Events, asked: Asked, target: CudaTarget
) -> tuple[Handoff, ...]:
    """One word for all events is followed where it is legal (somewhere, else an error); a word for
    a named event must be legal there. Events that are not named are `auto`, as others are beside
    `recompute`, which needs tagged words to find something from."""
    named = dict(asked) if not isinstance(asked, str) else {}
    default = asked if isinstance(asked, str) else "auto"
    _known_words(plan, named, default)
    others = "auto" if default == "recompute" else default  # which is taken wherever it is legal
    words = {e.name: named.get(e.name, others) for e in plan.events}
    flags = FlagQuestion(plan.program, derived, events)
    work = _Decision(plan, events, flags, words, target)
    ordered = sorted(words, key=lambda e: words[e] == "auto")  # first what is asked for
    for event in ordered:
        work.flag(event)
    for event in ordered:
        work.find_again(event)
    found = tuple(work.edge(w) for w in work.waits())
    for event, word in named.items():
        _followed([h for h in found if h.event == event], work, word, f"event {event}")
    if default != "auto" and found:
        _followed(list(found), work, default, "any event")
    return found


def _known_words(plan: Plan, named: dict[str, str], default: str) -> None:
    unknown = set(named) - {e.name for e in plan.events}
    if unknown:
        have = ", ".join(e.name for e in plan.events) or "none"
        raise BadOption(f"handoff names unknown events: {', '.join(sorted(unknown))}",
                        hint=f"the events are: {have}")
    for word in (default, *named.values()):
        if word not in KINDS:
            raise BadOption(f"unknown handoff {word!r}", hint=f"one of {', '.join(KINDS)}")


def _followed(found: list[Handoff], work: _Decision, word: str, what: str) -> None:
    if word in ("auto", "counter") or any(h.kind.value == word for h in found):
        return
    told = [r for h in found for r in (work.refused.get((h.event, h.call, word)),) if r]
    why = next((r for r in told if r != NO_TABLE), told[0] if told else "nobody waits for it")
    raise BadOption(f"{what} cannot be handed off by {word}: {why}",
                    hint="et.explain shows the hand-off of each event and why")


@dataclass
class _Decision:
    """`words`: what is asked for each event. `flagged`: event -> (tensors, reason). `again`: event
    -> what is found, by which call. `refused`: (event, call, kind) -> reason."""

    plan: Plan
    events: Events
    flags: FlagQuestion
    words: dict[str, str]
    target: CudaTarget
    flagged: dict[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)
    again: dict[str, frozenset[Found]] = field(default_factory=dict)
    refused: dict[tuple[str, str, str], str] = field(default_factory=dict)

    @property
    def costs(self) -> HandoffCosts:
        return self.target.costs.handoff

    def waits(self) -> list[EventUse]:
        """One for each edge: the one that leaves least freedom, if a call waits in several places
        (before its grid, before its body, inside)."""
        plain_first = sorted(self.events.waits, key=lambda w: w.node != call_of(w.node))
        seen = {(w.event.name, call_of(w.node)): w for w in plain_first}
        order = {p.call.name: k for k, p in enumerate(self.plan.program.calls)}
        return sorted(seen.values(), key=lambda w: order[call_of(w.node)])

    def other_worker(self, wait: EventUse) -> str:
        schedules = {c.call: c.schedule for c in self.plan.calls}
        return not_on_one_worker(self.plan.program, self.events, schedules, wait)

    # ---- flags: all edges of an event together -----------------------------------------------
    #
    # Whoever reads a tensor with flags looks at them. Another event between its writers and readers
    # may still count: what it orders besides.

    def flag(self, event: str) -> None:
        """Let the tensors of an event carry flags, if that is asked for, or legal and cheap."""
        word = self.words[event]
        if word not in ("tagged", "auto") or event in self.flagged:
            return
        edges = [w for w in self.waits() if w.event.name == event]
        if word == "auto" and all(not self.other_worker(w) for w in edges):
            return
        tensors, why = self._flaggable(event, self.flags.tensors_of(event), word)
        if why:
            for w in edges:
                self.refused[event, call_of(w.node), "tagged"] = why
            return
        reason = "asked for" if word == "tagged" else self._payload(tensors).why_flag
        self.flagged[event] = (tensors, reason)

    def _flaggable(
        self, event: str, tensors: tuple[str, ...], word: str
    ) -> tuple[tuple[str, ...], str]:
        """The tensors that must carry flags so that the event may go, or why it may not. What it
        orders besides, on the way through other calls, may be a tensor that can have flags too."""
        if not tensors:
            return (), "no tensor goes this way"
        why = next(filter(None, map(self.flags.refusal, tensors)), "")
        if why:
            return (), why
        if word == "auto" and not self._payload(tensors).is_cheap(self.costs):
            return (), self._payload(tensors).why_not
        if word == "auto" and any(self._by_lines(t) for t in tensors):
            return (), "a product takes it line by line"
        lost = self.flags.lost(frozenset(self.flagged),
                               frozenset(self._with_flags().union(tensors)), frozenset({event}))
        if lost.tensor and not self.flags.refusal(lost.tensor):
            return self._flaggable(event, (*tensors, lost.tensor), word)
        return tensors, lost.why

    def _with_flags(self) -> set[str]:
        return {t for tensors, _ in self.flagged.values() for t in tensors}

    def _payload(self, tensors: tuple[str, ...]) -> Payload:
        """Of all calls that read one of the tensors, at most, and altogether."""
        read = [[_size(self.plan, p, k) for k, r in enumerate(p.call.reads) if r.tensor in tensors]
                for p in self.plan.program.calls]
        each = [sum(s.words for s in sizes) for sizes in read]
        bytes_ = [sum(s.words * s.word for s in sizes) for sizes in read]
        tasks = [max((s.tasks for s in sizes), default=0) for sizes in read]
        polled = [sum(n * t for n, t in zip(x, tasks, strict=True)) for x in (each, bytes_)]
        return Payload(max(each), polled[0], max(bytes_), polled[1])

    def find_again(self, event: str) -> None:
        """Let the waiters of an event find what it tells by themselves, where they can."""
        if self.words[event] not in ("recompute", "auto") or event in self.flagged:
            return
        found, why = AgainQuestion(self.plan, self.events, self.flags).found(
            event, frozenset(self.flagged), frozenset(self._with_flags()), self.again)
        if not why:
            self.again[event] = found
            return
        for w in self.waits():
            if w.event.name == event:
                self.refused[event, call_of(w.node), "recompute"] = why

    # ---- edges ---------------------------------------------------------------------------------

    def edge(self, wait: EventUse) -> Handoff:
        event, call = wait.event.name, call_of(wait.node)
        word = self.words[event]
        if event in self.flagged:
            tensors, reason = self.flagged[event]
            return Handoff(event, call, HandoffKind.tagged, reason, tensors)
        if event in self.again:
            reason = "the producer warp finds its numbers again: no task and no hop between"
            tensors = tuple(sorted(t for t, who in self.again[event] if who == call))
            return Handoff(event, call, HandoffKind.recompute, reason, tensors)
        apart = self.other_worker(wait)
        if apart:
            self.refused[event, call, "same_worker"] = apart
        if not apart and self._producer_waits(event, call):
            self.refused[event, call, "same_worker"] = apart = (
                "the producer warp waits for it as well"
            )
        if word in ("auto", "same_worker") and not apart:
            reason = "the tile before it on the same worker made what it needs"
            return Handoff(event, call, HandoffKind.same_worker, reason)
        if word in ("auto", "tagged_index"):
            found = self._table(event, call)
            if found is not None:
                return found
        if word in ("auto", "bulk"):
            found = self._bulk(wait, word)
            if found is not None:
                return found
        reason = "asked for" if word == "counter" else self._why_counter(event, call, word)
        return Handoff(event, call, HandoffKind.counter, reason)

    def _producer_waits(self, event: str, call: str) -> bool:
        return any(s.call == call and event in s.wait_events for s in self.plan.streams)

    def _table(self, event: str, call: str) -> Handoff | None:
        """What the producer warp waits for are numbers of a table, and it looks at these alone."""
        tensors, why = TableQuestion(self.plan, self.events, self.flags).found(event, call)
        if why:
            self.refused[event, call, "tagged_index"] = why
            return None
        reason = "the producer warp goes on with its numbers: no fence, no second trip"
        return Handoff(event, call, HandoffKind.tagged_index, reason, tensors)

    def _why_counter(self, event: str, call: str, word: str) -> str:
        kinds = ("same_worker", "tagged") if word == "auto" else (word,)
        told = (self.refused.get((event, call, k)) for k in kinds)
        return "; ".join(dict.fromkeys(t for t in told if t)) or "works everywhere"

    def _bulk(self, wait: EventUse, word: str) -> Handoff | None:
        event, call = wait.event.name, call_of(wait.node)
        makers = {n.node for n in self.events.notifies if n.event.name == event}
        if not self.target.supports(Feature.tma):
            self.refused[event, call, "bulk"] = f"{self.target.name} has no bulk copies"
            return None
        if wait.node != call:
            self.refused[event, call, "bulk"] = "it is not waited for at the start of a task"
            return None
        made = {r.tensor for m in makers for r in self.plan.program.call(m).writes}
        others = self._with_flags() | self._waited_inside(call)
        p = self.plan.program.placed(call)
        arg, why = bulk_operand(self.plan.program, p, made - others)
        if arg is None:
            self.refused[event, call, "bulk"] = why
            return None
        size = _size(self.plan, p, arg).words * self.plan.program.tensor(
            p.call.reads[arg].tensor).dtype.size
        if word == "auto" and not (size >= self.costs.min_bulk_bytes and self._staged(p, arg)):
            return None
        reason = "asked for" if word == "bulk" else f"{size} bytes that a matrix product re-reads"
        return Handoff(event, call, HandoffKind.bulk, reason, (p.call.reads[arg].tensor,))

    def _staged(self, p: PlacedCall, arg: int) -> bool:
        """A product re-reads the operand, all of it at once: many columns go by lines."""
        return arg not in self._lines(p) and feeds_product(p.call.body, arg)

    def _lines(self, p: PlacedCall) -> set[int | None]:
        """Arguments that products take line by line."""
        wide = (
            product_of(p.call.body, s.arg)
            for s in self.plan.streams
            if s.call == p.call.name and s.is_b_streamed
        )
        return {argument_of(p.call.body, x.other) for x in wide if x is not None}

    def _by_lines(self, tensor: str) -> bool:
        return any(p.call.reads[k].tensor == tensor
                   for p in self.plan.program.calls for k in self._lines(p) if k is not None)

    def _waited_inside(self, call: str) -> set[str]:
        """Tensors for which the body of a call may wait in a loop."""
        events = {w.event for w in self.plan.call(call).waits if w.loop is not None}
        makers = {n.node for n in self.events.notifies if n.event.name in events}
        return {r.tensor for m in makers for r in self.plan.program.call(m).writes}


# ---- cost ----------------------------------------------------------------------------------

UNKNOWN = 1 << 62  # words of a tile, or tasks of a grid, without a known bound


@dataclass(frozen=True)
class _Size:
    """Words of a tile, tasks of its grid, and bytes of a word."""

    words: int
    tasks: int
    word: int


@dataclass(frozen=True)
class Payload:
    """What travels through a tensor: words for a reading task (the most), and for all of them."""

    each: int
    polled: int
    bytes_each: int
    bytes_polled: int

    def is_cheap(self, costs: HandoffCosts) -> bool:
        return 0 < self.bytes_each <= costs.max_tagged_bytes_per_task \
            and self.bytes_polled <= costs.max_tagged_bytes_polled

    @property
    def why_flag(self) -> str:
        return f"at most {self.each} words for a task: a hop without a fence"

    @property
    def why_not(self) -> str:
        if self.polled >= UNKNOWN:
            return "the payload has no known bound"
        return f"up to {self.polled} words would be polled, {self.each} by one task"


def _size(plan: Plan, p: PlacedCall, arg: int) -> _Size:
    """Upper bounds for one argument of a call."""
    region = p.call.regions[arg]
    tensor = plan.program.tensor(region.tensor)
    words = [numeric_bounds(e, nonnegative)[1] for e in tile_shape(region, tensor)]
    tasks = [numeric_bounds(a.extent, nonnegative)[1] for a in p.call.grid]
    return _Size(_product(words), _product(tasks), tensor.dtype.tagged_bytes)


def _product(sizes: list[int | None]) -> int:
    total = 1
    for s in sizes:
        if s is None:
            return UNKNOWN
        total = min(total * max(s, 0), UNKNOWN)
    return total
