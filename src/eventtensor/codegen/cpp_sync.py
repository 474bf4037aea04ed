"""Waits, notifies and releases of a plan as loops over cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..ir.expr import Const, Node, text
from ..ir.plan import Nest, Notify, Plan, Release, Wait
from ..ir.program import EventTensor
from ..ir.walk import substitute
from .cpp_expr import ExprWriter
from .emitter import Emitter, cpp_name
from .limits import Limits

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


@dataclass(frozen=True)
class SyncWriter:
    out: Emitter
    expr: ExprWriter
    plan: Plan

    def event_shape(self, event: EventTensor) -> tuple[Node, ...]:
        limits = Limits(self.plan.program)
        return tuple(limits.upper(s) for s in event.shape)

    def cell(self, event: EventTensor, index: tuple[Node, ...]) -> str:
        """Position of a cell within its event tensor."""
        return self.expr.linear([self.expr(i) for i in index], self.event_shape(event))

    def each(self, nest: Nest, action: Callable[[tuple[Node, ...]], None]) -> None:
        """Loops and guards of a nest around what `action` writes for an index."""
        for a in nest.axes:
            v = cpp_name(a.var)
            step = f"++{v}" if a.step == 1 else f"{v} += {a.step}"
            self.out.line(
                f"for (int64_t {v} = {self.expr(a.lo)}; {v} < {self.expr(a.hi)}; {step})"
            )
            self.out.deeper()
        for g in nest.guards:
            self.out.line(f"if ({self.expr(g)})")
            self.out.deeper()
        action(nest.index)
        for _ in range(len(nest.axes) + len(nest.guards)):
            self.out.shallower()

    def waits(self, waits: tuple[Wait, ...], verb: str = "ev_wait") -> None:
        """Leave with false when the launch is given up."""
        for w in waits:
            event = self.plan.event(w.event)
            for nest in w.cells:
                why = f", for {w.reason}" if w.reason else ""
                self.out.comment(f"wait {w.event}{nest_text(nest)}{why}")

                def one(index: tuple[Node, ...], event: EventTensor = event) -> None:
                    target = self.expr(count_at(event, index))
                    self.out.line(
                        f"if (!et::{verb}(worker, args.cell.{cpp_name(event.name)}, "
                        f"{self.cell(event, index)}, {target})) return false;"
                    )

                self.each(nest, one)

    def notifies(self, notifies: tuple[Notify, ...]) -> None:
        for n in notifies:
            event = self.plan.event(n.event)
            for nest in n.cells:
                self.out.comment(f"notify {n.event}{nest_text(nest)}")

                def one(index: tuple[Node, ...], event: EventTensor = event) -> None:
                    self.out.line(
                        f"et::ev_notify(worker, args.cell.{cpp_name(event.name)}, "
                        f"{self.cell(event, index)});"
                    )

                self.each(nest, one)

    def release(self, release: Release) -> None:
        """Tell every task of the release's nests that one more of its cells is dispatched."""
        for nest in release.tasks:
            self.out.comment(f"releases {release.call}{nest_text(nest)}")

            def one(index: tuple[Node, ...]) -> None:
                coords = ", ".join(self.expr(i) for i in index)
                tail = f", {coords}" if coords else ""
                self.out.line(f"ready_{release.call}(worker, args{tail});")

            self.each(nest, one)
