"""Waits, notifies and releases of a plan as loops over cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from ...ir.expr import Const, Node, text
from ...ir.interval import symbolic_bounds
from ...ir.plan import CallPlan, Nest, Notify, Plan, Release, Wait
from ...ir.program import Call, EventTensor
from ...ir.tile import For
from ...ir.walk import substitute
from ...render.index_text import ExprWriter
from ..emitter import cpp_name
from .dialect import Dialect

Cells = Callable[[EventTensor, tuple[Node, ...]], None]


def nest_text(nest: Nest) -> str:
    """`[i, k] for k in 0..n if ..`, for comments."""
    out = f"[{', '.join(text(i) for i in nest.index)}]"
    for a in nest.axes:
        step = f" step {a.step}" if a.step != 1 else ""
        out += f" for {a.var} in {text(a.lo)}..{text(a.hi)}{step}"
    if nest.guards:
        out += f" if {' and '.join(text(g) for g in nest.guards)}"
    return out


def count_at(event: EventTensor, index: tuple[Node, ...]) -> Node:
    """The count of the cell at an index."""
    values = {f"c{k}": i for k, i in enumerate(index)}
    return Const(0) if event.count is None else substitute(event.count, values)


class Edges:
    """How the edges of a plan are realised: here by counters, all of them. codegen/cuda/handoff.py
    has other ways."""

    def waits(self, call: CallPlan) -> tuple[Wait, ...]:
        """Those that stand before the body and count."""
        return tuple(w for w in call.waits if w.loop is None)

    def notifies(self, call: CallPlan) -> tuple[Notify, ...]:
        return call.notifies

    def counts(self, event: str) -> bool:
        """False if nobody looks at the cells of an event."""
        return True

    flagged: frozenset[str] = frozenset()  # tensors whose elements are words that carry flags

    def has_flags(self, tensor: str) -> bool:
        return tensor in self.flagged

    def staged(self, call: Call) -> tuple[int, ...]:
        """Arguments that the body brings into the arena before the task is ready."""
        return ()

    def in_bulk(self, call: Call, arg: int) -> bool:
        """True if a staged argument is brought by one copy (else word by word)."""
        return False

    def slots(self, places: Sequence[Node]) -> list[int]:
        """How many places of words each thread asks for at once, of so many in each region."""
        return [1 for _ in places]

    def finds(self, call: Call) -> bool:
        """True if the producer warp waits for the words that a call reads, and the tasks of the
        call for nothing but its pages."""
        return False

    def words_first(self, call: Call, waits: tuple[Wait, ...]) -> bool:
        """True if the words that a task reads are there before the last of its waits is over, as
        far as the order of calls tells."""
        return False

    ahead = 0  # elements of an operand that may be asked for before the waits

    def before_copies(self, call: Call) -> list[str]:
        """What all threads do before they meet and one of them asks for copies in bulk."""
        return []


@dataclass(frozen=True)
class SyncWriter:
    out: Dialect
    expr: ExprWriter
    plan: Plan

    def event_shape(self, event: EventTensor) -> tuple[Node, ...]:
        """Over dims alone. Of a choice between sizes the larger is enough, and shorter code."""
        ends = [symbolic_bounds(s)[1] for s in event.shape]
        return tuple(s if end is None else end for s, end in zip(event.shape, ends, strict=True))

    def cell(self, event: EventTensor, index: tuple[Node, ...]) -> str:
        """Position of a cell within its event tensor."""
        return self.expr.linear([self.expr(i) for i in index], self.event_shape(event))

    def each(self, nest: Nest, action: Callable[[tuple[Node, ...]], None]) -> None:
        """Loops and guards of a nest around what `action` writes for an index."""
        for a in nest.axes:
            v = cpp_name(a.var)
            step = f"++{v}" if a.step == 1 else f"{v} += {a.step}"
            self.out.line(
                f"{self.out.rolled}for (int64_t {v} = {self.expr(a.lo)}; "
                f"{v} < {self.expr(a.hi)}; {step})"
            )
            self.out.deeper()
        for g in nest.guards:
            self.out.line(f"if ({self.expr.condition(g)})")
            self.out.deeper()
        action(nest.index)
        for _ in range(len(nest.axes) + len(nest.guards)):
            self.out.shallower()

    def guard(self, event: EventTensor, index: tuple[Node, ...]) -> str:
        """Debug: the conditions that the cell exists, each followed by `&&`."""
        if not self.expr.debug:
            return ""
        sizes = self.event_shape(event)
        return "".join(
            f"et::cell_in(worker, EVENT_{event.name}, {k}, {self.expr(i)}, {self.expr(n)}) && "
            for k, (i, n) in enumerate(zip(index, sizes, strict=True))
        )

    def one_cell(self, wait: Wait) -> str | None:
        """Event, cell and count of a wait, if it has one cell at most; none counts nothing."""
        if len(wait.cells) != 1 or wait.cells[0].axes:
            return None
        (nest,), event = wait.cells, self.plan.event(wait.event)
        cell, count = self.cell(event, nest.index), self.expr(count_at(event, nest.index))
        if nest.guards:
            there = " && ".join(f"({self.expr.condition(g)})" for g in nest.guards)
            cell, count = (f"{there} ? {x} : 0" for x in (cell, count))
        return f"args.cell.{cpp_name(event.name)}, {cell}, {count}"

    def waits(self, waits: tuple[Wait, ...]) -> None:
        """Leave with false when the launch is given up."""
        for w in waits:
            event = self.plan.event(w.event)
            for nest in w.cells:
                why = f", for {w.reason}" if w.reason else ""
                self.out.comment(f"wait {w.event}{nest_text(nest)}{why}")

                def one(index: tuple[Node, ...], event: EventTensor = event) -> None:
                    target = self.expr(count_at(event, index))
                    guard = self.guard(event, index)
                    wait = (
                        f"et::ev_wait(worker, args.cell.{cpp_name(event.name)}, "
                        f"{self.cell(event, index)}, {target})"
                    )
                    held = f"({guard}{wait})" if guard else wait
                    self.out.line(f"if (!{held}) return false;")

                look = self.look(event, nest)
                with self.out.block(f"if (!{look})") if look else nullcontext():
                    self.each(nest, one)

    def look(self, event: EventTensor, nest: Nest) -> str:
        """One look at all cells of a nest along one axis, where many threads can have it."""
        if not self.out.looks or self.expr.debug or len(nest.axes) != 1 or nest.guards \
                or nest.axes[0].step != 1 or nest.axes[0].lo != Const(0):
            return ""
        (axis,) = nest.axes
        found = f"{{{self.cell(event, nest.index)}, {self.expr(count_at(event, nest.index))}}}"
        given = f"[&](int64_t {cpp_name(axis.var)}) {{ return et::Look{found}; }}"
        return (f"et::all_reached(worker, args.cell.{cpp_name(event.name)}, "
                f"{self.expr(axis.hi)}, {given})")

    def chunk_waits(self, call: CallPlan, loop: For) -> None:
        """Those that stand at the start of an iteration of a loop of the body."""
        self.waits(tuple(w for w in call.waits if w.loop is not None and w.loop.var == loop.var))

    def notifies(self, notifies: tuple[Notify, ...], how: str = "ev_notify") -> None:
        """`notify_async` (notifier.cuh) takes two cells at once, since a release costs the most."""
        cells = [self._one_notified(n) for n in notifies]
        if how == "notify_async" and len(cells) == 2 and all(cells):
            for n in notifies:
                self.out.comment(f"notify {n.event}{nest_text(n.cells[0])}")
            self.out.line(f"et::{how}(worker, {', '.join(cells)});")
            return
        for n in notifies:
            event = self.plan.event(n.event)
            for nest in n.cells:
                self.out.comment(f"notify {n.event}{nest_text(nest)}")

                def one(index: tuple[Node, ...], event: EventTensor = event) -> None:
                    guard = self.guard(event, index).removesuffix(" && ")
                    self.out.line(
                        (f"if ({guard}) " if guard else "")
                        + f"et::{how}(worker, args.cell.{cpp_name(event.name)}, "
                        f"{self.cell(event, index)});"
                    )

                self.each(nest, one)

    def _one_notified(self, n: Notify) -> str:
        """Event and cell, if each task notifies one; else nothing."""
        if len(n.cells) != 1 or not n.cells[0].is_single:
            return ""
        event = self.plan.event(n.event)
        return f"args.cell.{cpp_name(event.name)}, {self.cell(event, n.cells[0].index)}"

    def release(self, release: Release) -> None:
        """Tell every task of the release's nests that one more of its cells is dispatched."""
        for nest in release.tasks:
            self.out.comment(f"releases {release.call}{nest_text(nest)}")

            def one(index: tuple[Node, ...]) -> None:
                coords = ", ".join(self.expr(i) for i in index)
                tail = f", {coords}" if coords else ""
                self.out.line(f"ready_{release.call}(worker, args{tail});")

            self.each(nest, one)
