"""Check 3: accesses of one element by several threads, of which one writes, have a convergence of
their role between them.

The walk shares `effects` and `conflict` with the passes, and nothing else. It goes through loop
bodies twice, and treats memory that an iteration gives back as anybody's.
"""

from __future__ import annotations

from itertools import combinations_with_replacement

from ...errors import Unordered
from .. import statements as st
from ..effects import (
    Access,
    conflict,
    effects,
    given_back,
    head_effects,
    made_by,
    value_accesses,
)
from ..scopes import Mode, Scope
from .refusal import Place, places, within

Pending = dict[Access, str]  # with the step of the statement that it stands in


def check_conflicts(f: st.Function) -> None:
    pending: Pending = {}
    if f.threads == 1:
        return
    _block(places(f), pending, frozenset())
    if pending:
        access, step = next(iter(pending.items()))
        last = places(f)[-1]
        raise last.refuse(Unordered, f"the body ends while threads may still {access} ({step})")


def _block(block: list[Place], pending: Pending, live: frozenset[str]) -> None:
    for at in block:
        s = at.stmt
        live |= made_by(s)
        if isinstance(s, st.For | st.If):
            _branch(at, s, pending, live)
            continue
        found = effects(s)
        if found.meets[0] >= Scope.role:
            pending.clear()
        _ordered(at, found.accesses, pending)
        _among_threads(at, found.accesses)
        pending.update(dict.fromkeys(found.accesses, at.steps[-1]))
        if found.meets[1] >= Scope.role:
            pending.clear()


def _branch(at: Place, s: st.For | st.If, pending: Pending, live: frozenset[str]) -> None:
    """The body may not be run; a loop's may be run again."""
    head = head_effects(s).accesses
    _ordered(at, head, pending)
    pending.update(dict.fromkeys(head, at.steps[-1]))
    for _ in range(2 if isinstance(s, st.For) else 1):
        skipped = dict(pending)
        _block(within(at, s.body), pending, live)
        for a in [a for a in pending if a.arena and a.memory and a.memory not in live]:
            pending[given_back(a, live)] = pending.pop(a)
        pending.update(skipped)


def _ordered(at: Place, accesses: tuple[Access, ...], pending: Pending) -> None:
    for a in accesses:
        for b, step in pending.items():
            if conflict(a, b):
                raise at.refuse(
                    Unordered,
                    f"'{a}' comes while threads may still '{b}' ({step}): "
                    "their role has not converged since",
                )


def _among_threads(at: Place, accesses: tuple[Access, ...]) -> None:
    """Threads that run one statement at the same time."""
    s = at.stmt
    if isinstance(s, st.Histogram) or (isinstance(s, st.Elect) and s.scope >= Scope.role):
        return
    for a, b in combinations_with_replacement(accesses, 2):
        if conflict(a, b):
            raise at.refuse(Unordered, f"one thread may '{a}' while another may '{b}'")
    if isinstance(s, st.Elements):
        _stale(at, s)
        _gathered(at, s)


def _stale(at: Place, s: st.Elements) -> None:
    """What is loaded before the body is not what the body stores."""
    loads = {a.memory for x in s.first for a in value_accesses(x.value, s)}
    stores = {a.memory for x in s.body for a in effects(x).accesses if a.mode is not Mode.read}
    for memory in sorted(loads & stores):
        raise at.refuse(
            Unordered, f"'{memory}' is loaded for all elements before the body stores to it"
        )


def _gathered(at: Place, s: st.Elements) -> None:
    """Rows that may meet twice are one thread's."""
    for inner in within(at, s.body):
        x = inner.stmt
        if not isinstance(x, st.Store | st.Accumulate):
            continue
        spread = {a.var for a in s.spread}
        for k, e in enumerate(x.index):
            if x.view.table(k) is not None and str(e) in spread:
                raise inner.refuse(
                    Unordered,
                    f"axis {k} has gathered rows, which may meet twice, "
                    "and several threads go over them",
                )
