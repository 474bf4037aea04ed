"""When a body touches what it reads, by plain enumeration of its loops. Nothing of the compiler's
own idea of chunks: every use of an argument is looked at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from eventtensor.ir import tile as t
from eventtensor.ir.ops import operands
from eventtensor.ir.plan import Wait
from eventtensor.ir.program import Call
from eventtensor.ir.tensor import Point, axis_exprs
from eventtensor.ir.walk import evaluate, free_vars, loads_of

Env = Mapping[str, int]
Range = tuple[int, int]


@dataclass(frozen=True)
class Touch:
    """Argument `arg` is read after `stage` waits: all of it, or the ranges `part` of its tile."""

    arg: int
    stage: int
    part: tuple[Range, ...] | None = None


def in_turn(call: Call, waits: tuple[Wait, ...], env: Env) -> list[tuple[Wait, Env]]:
    """All waits of a task, those of its loops iteration by iteration, each with what it sees."""
    found: list[tuple[Wait, Env]] = [(w, env) for w in waits if w.loop is None]
    for loop in (s for s in call.body.stmts if isinstance(s, t.For)):
        here = [w for w in waits if w.loop is not None and w.loop.var == loop.var]
        for v in range(evaluate(loop.extent, env)) if here else ():
            found += [(w, {**env, f"%{loop.var}": v}) for w in here]
    return found


def touches(call: Call, waits: tuple[Wait, ...], env: Env) -> Iterator[Touch]:
    """Every use of a read argument. Outside the loops that wait, the task may read as it begins."""
    before = sum(w.loop is None for w in waits)
    written = {r.tensor for r in (*call.accumulates, *call.writes)}
    args = {s.id: s.op.arg for s in call.body.stmts
            if isinstance(s, t.Let) and isinstance(s.op, t.Arg)}
    for k, region in enumerate(call.reads):
        if region.pad is not None or region.tensor in written or call.has_custom_body:
            yield Touch(k, before)
    done = before
    for s in call.body.stmts:
        here = sum(
            w.loop is not None and isinstance(s, t.For) and w.loop.var == s.var for w in waits
        )
        if not isinstance(s, t.For) or not here:
            yield from _uses((s,), args, env, before)
            continue
        yield from _whole(s, args, before)
        for v in range(evaluate(s.extent, env)):
            done += here
            yield from _uses(s.body, args, {**env, f"%{s.var}": v}, done)


def _uses(
    stmts: tuple[t.Stmt, ...], args: Mapping[int, int], env: Env, stage: int
) -> Iterator[Touch]:
    for s in stmts:
        if isinstance(s, t.For):
            yield from _whole(s, args, stage)
            yield from _uses(s.body, args, env, stage)
        elif isinstance(s, t.Let):
            axes = s.op.axes if isinstance(s.op, t.SliceOf) else ()
            if axes and s.op.x in args and all(
                _plain(e, env) for a in axes for e in axis_exprs(a)
            ):
                part = tuple(_range(a, env) for a in axes)
                yield Touch(args[s.op.x], stage, part)
            else:
                yield from (Touch(args[x], stage) for x in operands(s.op) if x in args)
        else:
            yield from (Touch(args[x], stage) for x in (s.value,) if x in args)


def _whole(loop: t.For, args: Mapping[int, int], stage: int) -> Iterator[Touch]:
    used = {x for c in loop.carries for x in (c.init, c.next)}
    yield from (Touch(args[x], stage) for x in used if x in args)


def _plain(e: object, env: Env) -> bool:
    return free_vars(e) <= set(env) and not loads_of(e)


def _range(axis: t.SubAxis, env: Env) -> Range:
    if isinstance(axis, Point):
        at = evaluate(axis.index, env)
        return at, at + 1
    return evaluate(axis.start, env), evaluate(axis.stop, env)
