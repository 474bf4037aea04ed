"""A barrier of the role stands before a statement that conflicts with what threads may still be at.

before                                  after
    elements (i < n) linear                 elements (i < n) linear
      v[i] = x[i]                             v[i] = x[i]
                                            barrier role
    elements (i < n) linear                 elements (i < n) linear
      y[i] = v[n-1-i]                         y[i] = v[n-1-i]

Accesses are pending until their role converges. A loop's body is gone through twice: what is
pending at its end meets its begin. The body of a function ends converged, since the frame of a task
notifies behind it and the next task takes the same memory.

Precondition: none. No other pass moves statements behind this one.
"""

from __future__ import annotations

from dataclasses import replace

from ..kernel_ir import statements as st
from ..kernel_ir.effects import Access, conflict, effects, given_back, head_effects, made_by
from ..kernel_ir.scopes import Scope

Pending = dict[Access, None]
_BARRIER = st.Barrier(Scope.role)


def insert_barriers(f: st.Function) -> st.Function:
    pending: Pending = {}
    body = _block(f.body, pending, frozenset())
    return replace(f, body=(*body, _BARRIER) if pending else body)


def _block(block: st.Block, pending: Pending, live: frozenset[str]) -> st.Block:
    """`live`: buffers that were allocated before. What is pending is changed in place."""
    out: list[st.Stmt] = []
    for s in block:
        live |= made_by(s)
        if isinstance(s, st.For | st.If):
            out += _nested(s, pending, live)
            continue
        found = effects(s)
        if found.meets[0] >= Scope.role:
            pending.clear()
        elif any(conflict(a, b) for a in pending for b in found.accesses):
            out.append(_BARRIER)
            pending.clear()
        out.append(s)
        pending.update(dict.fromkeys(found.accesses))
        if found.meets[1] >= Scope.role:
            pending.clear()
    return tuple(out)


def _nested(s: st.For | st.If, pending: Pending, live: frozenset[str]) -> st.Block:
    """A statement with a body, and a barrier before it if its head conflicts."""
    head = head_effects(s).accesses
    before: st.Block = ()
    if any(conflict(a, b) for a in pending for b in head):
        before = (_BARRIER,)
        pending.clear()
    pending.update(dict.fromkeys(head))
    if isinstance(s, st.If):
        return (*before, _if(s, pending, live))
    skipped = dict(pending)
    _block(s.body, pending, live)
    _leave_iteration(pending, live)
    pending.update(skipped)
    body = _block(s.body, pending, live)
    _leave_iteration(pending, live)
    pending.update(skipped)
    return (*before, st.For(s.var, s.extent, body))


def _if(s: st.If, pending: Pending, live: frozenset[str]) -> st.If:
    skipped = dict(pending)
    body = _block(s.body, pending, live)
    pending.update(skipped)
    return st.If(s.condition, body)


def _leave_iteration(pending: Pending, live: frozenset[str]) -> None:
    """Memory that the iteration took is given back."""
    for a in [a for a in pending if a.arena and a.memory and a.memory not in live]:
        del pending[a]
        pending[given_back(a, live)] = None
