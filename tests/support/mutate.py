"""Systematic changes of the events of a right program: each wait, notify, count and map in turn.

A mutant may be legal; brute force decides. Changed cells stay inside their event tensor, so that
what goes wrong is the order and not the index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from eventtensor.analysis.derive import Derived
from eventtensor.ir.expr import Const, Node, Var, add, compare, maximum, minimum, mod, mul, wrap
from eventtensor.ir.plan import Nest, Notify, Wait
from eventtensor.ir.program import EventTensor, Program

Change = Callable[[Nest], tuple[Nest, ...]]


@dataclass(frozen=True)
class Mutant:
    name: str
    derived: Derived


def mutants(program: Program, derived: Derived) -> Iterator[Mutant]:
    """All changes, in the order of the program."""
    yield from _counts(derived)
    for call, waits in derived.waits.items():
        for k, wait in enumerate(waits):
            yield Mutant(f"{call}: drop wait {wait.event}", _with_waits(
                derived, call, waits[:k] + waits[k + 1 :]))
            for what, change in _changes(program, call, derived, wait.event):
                yield Mutant(f"{call}: wait {wait.event} {what}", _with_waits(
                    derived, call, _changed(waits, k, change)))
    for call, notifies in derived.notifies.items():
        for k, notify in enumerate(notifies):
            yield Mutant(f"{call}: drop notify {notify.event}", _with_notifies(
                derived, call, notifies[:k] + notifies[k + 1 :]))
            yield Mutant(f"{call}: notify {notify.event} twice", _with_notifies(
                derived, call, (*notifies, notify)))
            for what, change in _changes(program, call, derived, notify.event):
                yield Mutant(f"{call}: notify {notify.event} {what}", _with_notifies(
                    derived, call, _changed(notifies, k, change)))
    yield from _cycles(derived)


def legal(derived: Derived) -> Iterator[Mutant]:
    """Changes that keep a program right: more waiting, more counting, more cells."""
    for event in derived.events:
        assert event.count is not None
        double = _with_event(derived, replace(event, count=mul(Const(2), event.count)))
        for call, notifies in derived.notifies.items():
            again = tuple(n for n in notifies if n.event == event.name)
            double = _with_notifies(double, call, notifies + again)
        yield Mutant(f"{event.name}: all notify twice, count doubled", double)
        wider = replace(event, shape=tuple(add(s, Const(2)) for s in event.shape))
        yield Mutant(f"{event.name}: more cells than needed", _with_event(derived, wider))
    for call, waits in derived.waits.items():
        if waits:
            yield Mutant(f"{call}: waits twice", _with_waits(derived, call, waits + waits))
            yield Mutant(f"{call}: waits in reverse", _with_waits(derived, call, waits[::-1]))


# ---- counts and cycles ---------------------------------------------------------------------


def _counts(derived: Derived) -> Iterator[Mutant]:
    for event in derived.events:
        assert event.count is not None
        for step in (1, -1):
            count = add(event.count, Const(step))
            yield Mutant(f"{event.name}: count {step:+}",
                         _with_event(derived, replace(event, count=count)))


def _cycles(derived: Derived) -> Iterator[Mutant]:
    """The call that notifies an event also waits for it, at its own cells."""
    for call, notifies in derived.notifies.items():
        for n in notifies:
            own = Wait(n.event, n.cells)
            yield Mutant(f"{call}: waits for its own {n.event}",
                         _with_waits(derived, call, (*derived.waits[call], own)))


# ---- maps ----------------------------------------------------------------------------------


def _changes(
    program: Program, call: str, derived: Derived, event: str
) -> Iterator[tuple[str, Change]]:
    shape = next(e for e in derived.events if e.name == event).shape
    for k, size in enumerate(shape):
        yield f"axis {k} + 1", _at(k, partial(_next, size))
        yield f"axis {k} - 1", _at(k, lambda i: maximum(add(i, Const(-1)), Const(0)))
        yield f"axis {k} to 0", _at(k, lambda i: Const(0))
    names = {d.name: d for d in program.dims}
    if "n" in names:
        yield "not where n % 96 = 95", _guard(_apart(mod(names["n"], 96), 95))
    for var in program.placed(call).vars[:1]:
        yield f"only where {var} = 0", _guard(compare("<=", Var(var), Const(0)))
        yield f"only where {var} > 0", _guard(compare("<=", Const(1), Var(var)))


def _next(size: Node, index: Node) -> Node:
    return minimum(add(index, Const(1)), add(size, Const(-1)))


def _apart(e: Node, value: int) -> Node:
    return maximum(compare("<=", e, Const(value - 1)), compare("<=", Const(value + 1), e))


def _at(axis: int, change: Callable[[Node], Node]) -> Change:
    def made(nest: Nest) -> tuple[Nest, ...]:
        index = tuple(change(i) if k == axis else i for k, i in enumerate(nest.index))
        return (replace(nest, index=index),)

    return made


def _guard(cond: Node) -> Change:
    return lambda nest: (replace(nest, guards=(*nest.guards, cond)),)


def guarded(derived: Derived, call: str, cond: Any) -> Derived:
    """All waits of a call only where `cond` holds."""
    waits = tuple(
        replace(w, cells=tuple(c for n in w.cells for c in _guard(wrap(cond))(n)))
        for w in derived.waits[call]
    )
    return _with_waits(derived, call, waits)


# ---- a Derived with one thing changed ------------------------------------------------------


def _changed(uses: tuple[Any, ...], k: int, change: Change) -> tuple[Any, ...]:
    cells = tuple(made for nest in uses[k].cells for made in change(nest))
    return (*uses[:k], replace(uses[k], cells=cells), *uses[k + 1 :])


def _with_waits(derived: Derived, call: str, waits: tuple[Wait, ...]) -> Derived:
    return replace(derived, waits={**derived.waits, call: waits})


def _with_notifies(derived: Derived, call: str, notifies: tuple[Notify, ...]) -> Derived:
    return replace(derived, notifies={**derived.notifies, call: notifies})


def _with_event(derived: Derived, event: EventTensor) -> Derived:
    events = tuple(event if e.name == event.name else e for e in derived.events)
    return replace(derived, events=events)
