"""Push groups: one queue for a run of adjacent calls, filled by early push.

A claimed task adds to the dispatched counter of every cell it will notify; the claim that completes
one adds to the pending counter of every task that waits for it; a task whose pending counter is
complete goes into the queue. Waits still happen before the body.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ...ir.expr import Const, Node, add, mul, product
from ...ir.plan import Plan, ScheduleKind
from ...ir.program import EventTensor, PlacedCall
from ...render.index_text import ExprWriter, paren
from ..counts import grid_box
from ..emitter import cpp_name
from .dialect import Dialect
from .grid import GridWriter
from .sync import SyncWriter, count_at

QUEUE_FIXED = 3  # et::Queue::FIXED


@dataclass(frozen=True, slots=True)
class Group:
    """`events` are those whose cells the group itself completes and waits for."""

    number: int
    names: tuple[str, ...]
    events: tuple[str, ...]


def push_groups(plan: Plan) -> list[Group]:
    """The groups that can be queued. An event of a group that is also notified from outside it, or
    that has no inverse map, gives no way to tell when its last producer is claimed; such a group
    falls back to tickets, which need no such thing."""
    members: dict[int, list[str]] = {}
    for c in plan.calls:
        if c.schedule.kind is ScheduleKind.push:
            members.setdefault(c.schedule.group, []).append(c.call)
    groups = [_group(plan, number, tuple(names)) for number, names in sorted(members.items())]
    return [g for g in groups if g is not None]


def _group(plan: Plan, number: int, names: tuple[str, ...]) -> Group | None:
    notifiers: dict[str, set[str]] = {}
    for c in plan.calls:
        for n in c.notifies:
            notifiers.setdefault(n.event, set()).add(c.call)
    inverse = {(r.event, r.call) for r in plan.releases}
    events: list[str] = []
    for name in names:
        for w in plan.call(name).waits:
            makers = notifiers.get(w.event, set())
            if not makers & set(names):
                continue
            if makers - set(names) or (w.event, name) not in inverse:
                return None
            events.append(w.event)
    return Group(number, names, tuple(dict.fromkeys(events)))


@dataclass(frozen=True)
class GroupWriter:
    out: Dialect
    expr: ExprWriter
    sync: SyncWriter
    grids: GridWriter
    plan: Plan
    group: Group

    @property
    def calls(self) -> list[PlacedCall]:
        return [self.plan.program.placed(n) for n in self.group.names]

    def full_box(self, p: PlacedCall) -> tuple[Node, ...]:
        return grid_box(self.plan.program, p.axes)

    def size(self, p: PlacedCall) -> Node:
        """Room for the tasks of one instance."""
        return product(self.full_box(p)[len(p.loops) :])

    def stride(self) -> Node:
        total: Node = Const(QUEUE_FIXED)
        for p in self.calls:
            total = add(total, self.size(p))
        return total

    def cells(self) -> list[tuple[str, Node]]:
        first = self.calls[0]
        instances = product(self.full_box(first)[: len(first.loops)])
        found: list[tuple[str, Node]] = [
            (f"group_{self.group.number}", mul(instances, self.stride()))
        ]
        found += [(f"pending_{p.call.name}", product(self.full_box(p))) for p in self.calls]
        for name in self.group.events:
            shape = self.sync.event_shape(self.plan.event(name))
            found.append((f"dispatched_{name}", product(shape)))
        return found

    def queue(self, p: PlacedCall) -> str:
        """The first cell of the queue of the instance that the loop variables name."""
        loops = [cpp_name(lp.var) for lp in p.loops]
        instance = self.expr.linear(loops, self.full_box(p)[: len(loops)])
        base = f"args.cell.group_{self.group.number}"
        if not loops:
            return base
        return f"{base} + {paren(instance)} * {paren(self.expr(self.stride()))}"

    # ---- functions per call and event ------------------------------------------------------

    def functions(self) -> None:
        names = ", ".join(self.group.names)
        self.out.comment(f"---- push group {self.group.number}: {names} ".ljust(92, "-"))
        offset: Node = Const(0)
        for p in self.calls:
            self._push(p, offset)
            offset = add(offset, self.size(p))
            self._ready(p)
        for name in self.group.events:
            self._release(self.plan.event(name))
        for p in self.calls:
            self._claimed(p)
            self._open(p)

    def _head(self, what: str, p: PlacedCall) -> str:
        params = "".join(f", int64_t {cpp_name(v)}" for v in p.vars)
        # Every event that a task waits for makes it ready; the others have one call site or two.
        kind = self.out.outlined if what == "ready" else self.out.function
        head = f"{kind}void {what}_{p.call.name}"
        return f"[[maybe_unused]] {head}(et::Pusher worker, const Args& args{params})"

    @staticmethod
    def _pass(p: PlacedCall) -> str:
        return "".join(f", {cpp_name(v)}" for v in p.vars)

    def _pending(self, p: PlacedCall) -> str:
        at = self.expr.linear([cpp_name(v) for v in p.vars], self.full_box(p))
        return f"args.cell.pending_{p.call.name} + {at}"

    def _push(self, p: PlacedCall, offset: Node) -> None:
        shape = self.full_box(p)[len(p.loops) :]
        number = self.expr.linear([cpp_name(v) for v in p.call.coords], shape)
        start = "" if offset == Const(0) else f"{self.expr(offset)} + "
        with self.out.block(self._head("push", p)):
            self.out.line(f"et::queue_push(worker, {self.queue(p)}, {start}{number});")
        self.out.line()

    def _ready(self, p: PlacedCall) -> None:
        name = p.call.name
        with self.out.block(self._head("ready", p)):
            self.out.line(f"if (et::pending_add(worker, {self._pending(p)}, 1)) "
                          f"push_{name}(worker, args{self._pass(p)});")
        self.out.line()

    def _release(self, event: EventTensor) -> None:
        params = "".join(f", int64_t c{k}" for k in range(len(event.shape)))
        self.out.comment(f"The last producer of {event.name}[..] is claimed.")
        with self.out.block(
            f"{self.out.function}void release_{event.name}"
            f"(et::Pusher worker, const Args& args{params})"
        ):
            for r in self.plan.releases:
                if r.event == event.name and r.call in self.group.names:
                    self.sync.release(r)
        self.out.line()

    def _claimed(self, p: PlacedCall) -> None:
        with self.out.block(self._head("claimed", p)):
            for n in self.plan.call(p.call.name).notifies:
                if n.event not in self.group.events:
                    continue
                for nest in n.cells:
                    self.sync.each(nest, partial(self._dispatch, self.plan.event(n.event)))
        self.out.line()

    def _dispatch(self, event: EventTensor, index: tuple[Node, ...]) -> None:
        at, count = self.sync.cell(event, index), self.expr(count_at(event, index))
        where = "".join(f", {self.expr(i)}" for i in index)
        guard = self.sync.guard(event, index)
        cell = f"args.cell.dispatched_{event.name} + {at}"
        self.out.line(f"if ({guard}et::dispatched_add(worker, {cell}, {count})) "
                      f"release_{event.name}(worker, args{where});")

    def _need(self, event: EventTensor, index: tuple[Node, ...]) -> None:
        self.out.line(f"needed += int64_t({self.expr(count_at(event, index))} > 0);")

    def _open(self, p: PlacedCall) -> None:
        name = p.call.name
        inside = [w for w in self.plan.call(name).waits if w.event in self.group.events]
        with self.out.block(self._head("open", p)):
            if not inside:
                self.out.comment("Waits for nothing in the group: a seed.")
                self.out.line(f"push_{name}(worker, args{self._pass(p)});")
            else:
                self.out.line("int64_t needed = 0;")
                for w in inside:
                    for nest in w.cells:
                        self.sync.each(nest, partial(self._need, self.plan.event(w.event)))
                self.out.line(
                    f"if (et::pending_add(worker, {self._pending(p)}, et::Queue::OPEN - needed)) "
                    f"push_{name}(worker, args{self._pass(p)});")
        self.out.line()

    # ---- the worker's loop -----------------------------------------------------------------

    def grid(self, pass_args: Callable[[tuple[str, ...]], str]) -> None:
        first = self.calls[0]
        loops = tuple(lp.var for lp in first.loops)
        params = "".join(f", int64_t {cpp_name(v)}" for v in loops)
        o = self.out
        with o.block(
            f"{o.function}bool group_{self.group.number}"
            f"(et::Worker& worker, const Args& args{params})"
        ):
            for p in self.calls:
                at = ", ".join(cpp_name(v) for v in loops)
                header = self.plan.call(p.call.name).header
                if header:
                    o.line(f"et::grid_begin(worker, CALL_{p.call.name}, {{{at}}});")
                    self.sync.waits(header)
            o.line("int64_t total = 0;")
            for p in self.calls:
                self.grids.count(p.call)
            o.line(f"et::Queue queue(worker, {self.queue(first)});")
            self._seed(pass_args)
            with o.block("for (;;)"):
                self._serve(pass_args)
        o.line()

    def _seed(self, pass_args: Callable[[tuple[str, ...]], str]) -> None:
        o = self.out
        with o.block("if (queue.open())"):
            o.busy(True)
            for p in self.calls:
                with self.grids.tiles(p.call, "et::LaneTiles()"):
                    o.line(f"open_{p.call.name}(worker, args{pass_args(p.vars)});")
            o.busy(False)

    def _serve(self, pass_args: Callable[[tuple[str, ...]], str]) -> None:
        o = self.out
        o.line("const int64_t slot = queue.claim();")
        o.line("if (slot >= total) return true;")
        o.line("int64_t task = queue.take(worker, slot);")
        o.line("if (task < 0) return false;")
        for p in self.calls:
            name, size = p.call.name, self.expr(self.size(p))
            shape = [self.expr(s) for s in self.full_box(p)[len(p.loops) :]]
            with o.block(f"if (task < {size})"):
                for k, a in enumerate(p.call.grid):
                    after = " * ".join(paren(s) for s in shape[k + 1 :])
                    text = f"task / ({after})" if after else "task"
                    text = f"{text} % {paren(shape[k])}" if k else text
                    o.line(f"const int64_t {cpp_name(a.var)} = {text};")
                with o.leading():
                    o.line(f"claimed_{name}(worker, args{pass_args(p.vars)});")
                o.line(f"if (!task_{name}(worker, args{pass_args(p.vars)})) return false;")
                o.line("continue;")
            o.line(f"task -= {size};")
