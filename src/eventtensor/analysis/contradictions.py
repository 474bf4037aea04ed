"""Declared facts that no run-time data can satisfy, at any dims.

Anything follows from a contradiction, so a program with one would always be proved. Facts that
exclude each other at some dims only are legal: nobody launches with those dims.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, zip_longest

from ..ir.expr import Const, Node, maximum, minimum, product
from ..ir.program import Fact, Program
from ..ir.tensor import DType, Tensor
from ..ir.walk import loads_of
from .check_report import Kind, Problem, Witness
from .sets.budget import CLOSURE, OutOfBudget, budget
from .sets.isl_text import NotAffine, isl_text
from .sets.space import Scope, Side
from .sets.witness import Pair, smallest

_BITS = {DType.i32: (31, True), DType.i64: (63, True), DType.u8: (8, False)}


def contradictions(program: Program) -> list[Problem]:
    """Empty bounds, more distinct values than a bound has, and facts that exclude each other."""
    out = []
    for t in program.tensors:
        if t.bound is not None:
            out += [*_empty_bound(program, t), *_too_few_values(program, t)]
    return out or list(_fact_problems(program))


def _range(t: Tensor) -> tuple[Node, Node]:
    """The values that the bound and the dtype allow."""
    assert t.bound is not None
    bits, signed = _BITS[t.dtype]
    low, high = -(2**bits) if signed else 0, 2**bits - 1
    return maximum(t.bound[0], Const(low)), minimum(t.bound[1], Const(high))


def _empty_bound(program: Program, t: Tensor) -> Iterator[Problem]:
    assert t.bound is not None
    scope = Scope(program)
    low, high = (isl_text(e, scope) for e in _range(t))
    hit = _always(scope, _has_elements(t, scope), f"{high} < {low}")
    if hit is not None:
        yield _problem(
            f"no {t.dtype} lies in the bound {t.bound[0]}..{t.bound[1]} of {t.name}{_at(hit)}",
            t.place, "both ends of bound= are included; raise the min of a dim, or widen the bound",
            Witness(tuple(hit[0].items()), tensor=t.name))


def _too_few_values(program: Program, t: Tensor) -> Iterator[Problem]:
    """A tensor with distinct values has more elements than its bound has values."""
    if not t.distinct:
        return
    scope = Scope(program)
    low, high = (isl_text(e, scope) for e in _range(t))
    values = f"{high} - {low} + 1"
    axes = [t.shape[k] for k in t.distinct]
    try:
        more = f"{isl_text(product(axes), scope)} > {values}"
    except NotAffine:
        more = "(" + " or ".join(f"{isl_text(s, scope)} > {values}" for s in axes) + ")"
    hit = _always(scope, [*_has_elements(t, scope), f"{low} <= {high}"], more)
    if hit is not None:
        assert t.bound is not None
        yield _problem(
            f"{t.name} has more elements than values in its bound {t.bound[0]}..{t.bound[1]}, "
            f"so they cannot be distinct{_at(hit)}",
            t.place, "widen bound=, or leave distinct= away",
            Witness(tuple(hit[0].items()), tensor=t.name))


def _always(scope: Scope, case: list[str], wrong: str) -> Pair | None:
    """The smallest dims of a case, if `wrong` holds at all its dims."""
    bad = scope.copy()
    scope.require(*case)
    bad.require(*case, wrong)
    cases, found = scope.set(()), bad.set(())
    return smallest(found) if cases.is_subset(found) else None


def _has_elements(t: Tensor, scope: Scope) -> list[str]:
    """isl text: the tensor has an element."""
    return [f"{isl_text(s, scope)} >= 1" for s in t.shape]


def _fact_problems(program: Program) -> Iterator[Problem]:
    """The first fact, or pair of facts, that no data satisfies."""
    if not program.calls:
        return
    # a range that data decides may be empty
    known = [f for f in program.facts if not loads_of(*(a.extent for a in f.over))]
    for group in (*((f,) for f in known), *combinations(known, 2)):
        try:
            with budget(CLOSURE):  # too many loads; debug builds check the facts
                hit = _impossible(program, group)
        except (NotAffine, OutOfBudget):
            continue
        if hit is None:
            continue
        coords = [a.var for f in group for a in f.over][: len(hit[1])]
        at = ", ".join(f"{v} = {x}" for v, x in zip(coords, hit[1], strict=True))
        what = " and ".join(f"'{f.cond}'" for f in group)
        verb = "contradicts" if len(group) == 1 else "contradict each other or"
        word = "fact" if len(group) == 1 else "facts"
        yield _problem(
            f"{word} {what} {verb} what is declared of the data"
            f"{_at(hit)}{' for ' + at if at else ''}",
            group[-1].place, "no data can satisfy all of it: correct the fact, or its range",
            Witness(tuple(hit[0].items())))
        return


def _impossible(program: Program, facts: tuple[Fact, ...]) -> Pair | None:
    """The smallest dims and values of the facts' variables at which no data satisfies the facts, if
    there are such values at all dims. Facts over one range share their variables."""
    scope, side = Scope(program), Side(program.calls[0], "a_")
    bound: list[dict[str, str]] = []
    for fact in facts:
        alike = [a.extent for a in fact.over] == [a.extent for a in facts[0].over]
        known = tuple(bound[0].values()) if bound and alike else ()
        bound.append({})
        for axis, name in zip_longest(fact.over, known):
            extent = scope.text(axis.extent, side, bound[-1])
            bound[-1][axis.var] = name or scope.fresh("f")
            scope.require(f"0 <= {bound[-1][axis.var]} < {extent}")
    names = tuple(dict.fromkeys(v for at in bound for v in at.values()))
    points = scope.set(names)
    scope.require(*(scope.cond(f.cond, side, at) for f, at in zip(facts, bound, strict=True)))
    scope.finish()
    left = points.subtract(scope.set(names))
    return smallest(left) if points.params().is_subset(left.params()) else None


def _at(hit: Pair) -> str:
    return " at " + ", ".join(f"{n} = {v}" for n, v in hit[0].items()) if hit[0] else ""


def _problem(message: str, place: str, hint: str, witness: Witness) -> Problem:
    return Problem(Kind.contradiction, message, place, hint, witness)
