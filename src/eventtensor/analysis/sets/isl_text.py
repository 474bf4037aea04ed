"""Index expressions as isl text. A `ChoiceRemover` replaces choices, for which isl has no text."""

from __future__ import annotations

from typing import Protocol, assert_never

from ...ir.expr import (
    Compare,
    Const,
    Dim,
    FloorDiv,
    Load,
    Max,
    Min,
    Mod,
    Node,
    Prod,
    Select,
    Sum,
    Var,
)


class NotAffine(Exception):
    """A product of dims stands where isl needs an affine expression."""


class ChoiceRemover(Protocol):
    """Replaces choices in an expression by variables (space.Scope)."""

    def remove_choices(self, e: Node) -> Node: ...


def rising(gap: Node, a: str, b: str) -> str:
    """The relation of two values of a monotone function, by the gap of their indices. With gap 0 it
    holds for every function."""
    if isinstance(gap, Const):
        return f"{a} {'=' if gap.value == 0 else '<=' if gap.value < 0 else '>='} {b}"
    g = isl_text(gap)
    return (f"({g} < 0 and {a} <= {b}) or ({g} = 0 and {a} = {b}) or ({g} > 0 and {a} >= {b})")


def different(gaps: list[Node], a: str, b: str) -> str:
    """The values differ unless all gaps are 0. `rising` then says that they are equal."""
    if any(isinstance(g, Const) and g.value for g in gaps):
        return f"{a} != {b}"
    equal = " and ".join(f"{isl_text(g)} = 0" for g in gaps if not isinstance(g, Const))
    return f"({equal}) or {a} != {b}" if equal else ""


def isl_text(e: Node, scope: ChoiceRemover | None = None) -> str:
    """Text of an expression without loads. Dims have the prefix d_. Choices need a scope."""
    if scope is not None:
        e = scope.remove_choices(e)
    match e:
        case Const(v):
            return str(v)
        case Dim(name, _, _):
            return "d_" + name
        case Var(name):
            return name
        case Sum(terms, const):
            return "(" + " + ".join(f"{c}*{isl_text(t)}" for t, c in terms) + f" + {const})"
        case Prod() | Load() | Compare() | Select():
            raise NotAffine(str(e))
        case FloorDiv(a, k):
            return f"floor({isl_text(a)}/{k})"
        case Mod(a, k):
            return f"({isl_text(a)} - {k}*floor({isl_text(a)}/{k}))"
        case Min(a, b):
            return f"min({isl_text(a)}, {isl_text(b)})"
        case Max(a, b):
            return f"max({isl_text(a)}, {isl_text(b)})"
        case _:
            assert_never(e)


def minimum_parts(e: Node) -> list[Node]:
    """The expressions of which `e` is the minimum; `e` itself if it is none."""
    match e:
        case Min(a, b):
            return [*minimum_parts(a), *minimum_parts(b)]
        case _:
            return [e]


def isl_cond(e: Node, scope: ChoiceRemover) -> str:
    """Text of a condition (Compare; Min is and, Max is or)."""
    match e:
        case Compare(op, a, b):
            sign = "<=" if op == "<=" else "="
            return f"({isl_text(a, scope)} {sign} {isl_text(b, scope)})"
        case Min(a, b):
            return f"({isl_cond(a, scope)} and {isl_cond(b, scope)})"
        case Max(a, b):
            return f"({isl_cond(a, scope)} or {isl_cond(b, scope)})"
        case Sum(((a, -1),), 1):
            return f"(not {isl_cond(a, scope)})"
        case Const(v):
            return "(0 = 0)" if v else "(0 = 1)"
        case _:
            return f"({isl_text(e, scope)} >= 1)"
