"""Checks declarations of a program and makes their IR: tensors, event tensors and facts.

Names are checked by lang/program_builder.py.
"""

from __future__ import annotations

from ..errors import BadEvent, BadFact, BadTensor
from ..ir.expr import Compare, Const, Node, Var, wrap
from ..ir.program import EventTensor, Fact, GridAxis
from ..ir.tensor import DType, Role, Tensor
from ..ir.walk import free_vars, loads_of
from ..source_location import user_place
from .call import CallContext, check_scope, extent_expr, is_lambda, parameters
from .index_ops import is_index, reject_products
from .region_refs import RegionRef

FACTS = ("bound", "monotone", "distinct")


def tensor(
    role: Role, name: str, shape: object, dtype: DType, facts: dict[str, object],
    partial: bool = False,
) -> Tensor:
    unknown = set(facts) - set(FACTS)
    if unknown:
        raise BadTensor(
            f"tensor '{name}' is declared with {sorted(unknown)[0]!r}",
            hint="facts are bound=, monotone= and distinct=",
        )
    if not isinstance(dtype, DType):
        raise BadTensor(f"the dtype of '{name}' is {dtype!r}")
    sizes = _shape(name, shape)
    given = {k: v for k, v in facts.items() if v is not None and v is not False}
    if given and not dtype.is_int:
        raise BadTensor(f"'{name}' is {dtype}, and {sorted(given)[0]}= is for integer tensors")
    if given.get("monotone") is not None and not sizes:
        raise BadTensor(f"'{name}' has no axis along which it could be monotone")
    return Tensor(
        name, role, sizes, dtype, _bound(name, given.get("bound")),
        bool(given.get("monotone", False)), _distinct(name, given.get("distinct"), len(sizes)),
        partial, user_place(),
    )


def _shape(name: str, shape: object) -> tuple[Node, ...]:
    if not isinstance(shape, tuple | list):
        raise BadTensor(f"the shape of '{name}' is {shape!r}, not a tuple")
    return tuple(_dim_expr(name, s, "extent", 1) for s in shape)


def _dim_expr(name: str, value: object, what: str, least: int | None) -> Node:
    """The value as an expression of dims alone."""
    if not is_index(value) or isinstance(value, RegionRef):
        raise BadTensor(f"the {what} {value!r} of '{name}' is not an integer or dim expression")
    e = wrap(value)  # type: ignore[arg-type]
    if free_vars(e) or loads_of(e):
        raise BadTensor(f"the {what} '{e}' of '{name}' is not an expression of dims alone")
    reject_products(f"the {what} of '{name}'", e)
    if isinstance(e, Const) and least is not None and e.value < least:
        raise BadTensor(f"the {what} {e} of '{name}' is less than {least}")
    return e


def _bound(name: str, bound: object) -> tuple[Node, Node] | None:
    if bound is None:
        return None
    pair = bound if isinstance(bound, tuple | list) else (0, bound)
    if len(pair) != 2:
        raise BadTensor(f"the bound of '{name}' is {bound!r}", hint="bound=hi or bound=(lo, hi)")
    lo, hi = (_dim_expr(name, b, "bound", None) for b in pair)
    if isinstance(lo, Const) and isinstance(hi, Const) and hi.value < lo.value:
        raise BadTensor(f"the bound {lo}..{hi} of '{name}' is empty", hint="both ends are included")
    return lo, hi


def _distinct(name: str, distinct: object, rank: int) -> tuple[int, ...]:
    if distinct is None:
        return ()
    if distinct is True:
        return tuple(range(rank))
    axes = distinct if isinstance(distinct, tuple | list) else (distinct,)
    if any(isinstance(a, bool) or not isinstance(a, int) or not 0 <= a < rank for a in axes):
        raise BadTensor(f"distinct={distinct!r} of '{name}' is not True or axes of 0..{rank - 1}")
    return tuple(sorted(set(axes)))


def event(ctx: CallContext, name: str, shape: object, count: object) -> EventTensor:
    if not isinstance(shape, tuple | list):
        raise BadEvent(f"the shape of event tensor '{name}' is {shape!r}, not a tuple")
    sizes = tuple(_event_extent(name, s) for s in shape)
    if count is None:
        return EventTensor(name, sizes, place=user_place())
    coords = tuple(f"c{k}" for k in range(len(sizes)))
    if is_lambda(count):
        taken = parameters(count, f"count of {name}")
        if len(taken) != len(coords):
            raise BadEvent(
                f"the count of '{name}' takes {len(taken)} coordinates and its cells have"
                f" {len(coords)}"
            )
        count = count(*(Var(c) for c in coords))
    if not is_index(count):
        raise BadEvent(f"the count of '{name}' is {count!r}, not an integer or expression")
    e = wrap(count)  # type: ignore[arg-type]
    check_scope(CallContext(ctx.owner, (), ctx.tensors), (e,), coords, f"the count of '{name}'")
    if isinstance(e, Const) and e.value < 0:
        raise BadEvent(f"the count of '{name}' is {e}")
    return EventTensor(name, sizes, e, place=user_place())


def _event_extent(name: str, value: object) -> Node:
    if not is_index(value):
        raise BadEvent(f"an extent of event tensor '{name}' is {value!r}, not an integer")
    e = wrap(value)  # type: ignore[arg-type]
    if free_vars(e) or loads_of(e):
        raise BadEvent(f"the extent '{e}' of event tensor '{name}' is not made of dims alone")
    if isinstance(e, Const) and e.value < 1:
        raise BadEvent(f"the extent {e} of event tensor '{name}' is less than 1")
    return e


def facts(ctx: CallContext, cond: object, over: object) -> tuple[Fact, ...]:
    """One fact for each condition that the lambda returns."""
    entries = tuple(over) if isinstance(over, tuple | list) else (over,)
    coords: tuple[str, ...] = ()
    if is_lambda(cond):
        coords = parameters(cond, "p.fact")
    if len(coords) != len(entries):
        raise BadFact(f"a fact over {len(entries)} ranges is stated for {len(coords)} variables")
    outside_loops = CallContext(ctx.owner, (), ctx.tensors)
    axes = []
    for k, (entry, var) in enumerate(zip(entries, coords, strict=True)):
        if not is_index(entry):
            raise BadFact(f"the range of '{var}' in a fact is {entry!r}, not an extent")
        e = extent_expr(outside_loops, entry, f"the range of '{var}' in a fact")
        check_scope(outside_loops, (e,), coords[:k], f"the range of '{var}' in a fact")
        axes.append(GridAxis(var, e))
    value = cond(*(Var(c) for c in coords)) if is_lambda(cond) else cond
    conds = value if isinstance(value, tuple | list) else (value,)
    return tuple(_fact(outside_loops, tuple(axes), c) for c in conds)


def _fact(ctx: CallContext, axes: tuple[GridAxis, ...], cond: object) -> Fact:
    if not isinstance(cond, Compare):
        raise BadFact(f"{cond!r} is not a comparison that run-time data can satisfy or break",
                      hint="use <=, <, >=, > or et.equal(a, b)")
    check_scope(ctx, (cond,), tuple(a.var for a in axes), "a fact")
    return Fact(axes, cond, user_place())
