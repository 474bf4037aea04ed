"""Turns the arguments of `p.call` into parts of an ir.Call: coordinates, grid and regions.

Each argument is checked against the scope of the call: its coordinates, open loops and tensors of
the same program. What only a proof can decide is not checked here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeGuard

from ..errors import (
    BadBody,
    BadCall,
    BadEvent,
    BadGrid,
    BadRegion,
    BadRole,
    OrderedDataAccumulate,
)
from ..ir.expr import Const, Node, Var, wrap
from ..ir.ops import body_exprs
from ..ir.program import EventTensor, GridAxis
from ..ir.tensor import DType, Region, Rows, Tensor, is_data_dependent, region_exprs
from ..ir.tile import Body
from ..ir.walk import free_vars, loads_of
from .index_ops import is_index, reject_products
from .region_refs import EventRef, PaddedRef, RegionRef, TensorRef

Lambda = Callable[..., object]


@dataclass(frozen=True, slots=True)
class CallContext:
    """The scope of a call: its program, the open loops, and the tensors by name."""

    owner: object
    loops: tuple[str, ...]
    tensors: Mapping[str, Tensor]


def parameters(fn: Lambda, what: str) -> tuple[str, ...]:
    """The parameters of a lambda. One with a default is a captured value, not a coordinate."""
    names = []
    for p in inspect.signature(fn).parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise BadCall(f"the lambda of {what} takes {p}", hint="name the coordinates")
        if p.default is p.empty:
            names.append(p.name)
    return tuple(names)


def is_lambda(value: object) -> TypeGuard[Lambda]:
    return callable(value)


# ---- coordinates and grid ------------------------------------------------------------------


def grid_entries(grid: object) -> tuple[object, ...]:
    if isinstance(grid, tuple | list):
        return tuple(grid)
    return (grid,)


def coordinates(entries: tuple[object, ...], regions: Mapping[str, object]) -> tuple[str, ...]:
    """The names of the coordinates: the parameters of all region lambdas, which must agree."""
    found: tuple[str, ...] | None = None
    source = ""
    for what, value in regions.items():
        if not is_lambda(value):
            continue
        names = parameters(value, what)
        if len(names) != len(entries):
            raise BadCall(
                f"the lambda of {what}= takes {len(names)} coordinates and the grid has"
                f" {len(entries)} axes"
            )
        if found is not None and names != found:
            raise BadCall(
                f"the lambdas of {source}= and {what}= name the coordinates differently:"
                f" {found} and {names}"
            )
        found, source = names, what
    return found if found is not None else _grid_names(entries)


def _grid_names(entries: tuple[object, ...]) -> tuple[str, ...]:
    names = tuple(f"i{k}" for k in range(len(entries)))
    for k, entry in enumerate(entries):
        if is_lambda(entry):
            given = parameters(entry, "grid")
            if len(given) == k:
                names = (*given, *names[k:])
    return names


def grid_axes(
    ctx: CallContext, entries: tuple[object, ...], coords: tuple[str, ...]
) -> tuple[GridAxis, ...]:
    axes = []
    for k, (entry, var) in enumerate(zip(entries, coords, strict=True)):
        if is_lambda(entry):
            names = parameters(entry, "grid")
            late = [n for n in names if n not in coords[:k]]
            if late:
                raise BadGrid(
                    f"the extent of '{var}' depends on '{late[0]}', which is no earlier coordinate"
                    f" of this grid {coords}"
                )
            entry = entry(**{n: Var(n) for n in names})
        e = extent_expr(ctx, entry, f"the extent of '{var}'")
        check_scope(ctx, (e,), coords[:k], f"the extent of '{var}'")
        axes.append(GridAxis(var, e))
    return tuple(axes)


def extent_expr(ctx: CallContext, value: object, what: str) -> Node:
    """An extent of a grid axis, loop or event tensor."""
    if not is_index(value):
        raise BadGrid(f"{what} is {value!r}, which is not an integer or expression")
    if isinstance(value, RegionRef) and value.owner is not ctx.owner:
        raise BadCall(f"{what} is read from '{value}', a tensor of another program")
    e = wrap(value)  # type: ignore[arg-type]
    reject_products(what, e)
    if isinstance(e, Const) and e.value < 1:
        raise BadGrid(f"{what} is {e}", hint="constant extents are 1 or more")
    return e


def check_scope(
    ctx: CallContext, exprs: tuple[Node, ...], coords: tuple[str, ...], what: str
) -> None:
    """Refuse variables that are no coordinate or open loop, and loads of another program."""
    known = {*ctx.loops, *coords}
    for name in sorted(free_vars(*exprs)):
        if name not in known:
            raise BadCall(
                f"{what} uses '{name}', which is no coordinate here",
                hint="a loop variable is usable only inside its `with p.loop(..)` block",
            )
    for load in loads_of(*exprs):
        tensor = ctx.tensors.get(load.tensor)
        if tensor is None or len(tensor.shape) != len(load.index):
            raise BadCall(f"{what} reads '{load}', a tensor of another program")


# ---- regions -------------------------------------------------------------------------------


def regions(
    ctx: CallContext, value: object, coords: tuple[str, ...], what: str
) -> tuple[RegionRef, ...]:
    """The regions that an argument of `p.call` names."""
    if is_lambda(value):
        value = value(*(Var(c) for c in coords))
    items = value if isinstance(value, tuple | list) else (value,)
    found = tuple(_region(ctx, item, what) for item in items)
    for r in found:
        _check_region(ctx, r, coords, what)
    return found


def _region(ctx: CallContext, item: object, what: str) -> RegionRef:
    if isinstance(item, TensorRef | EventRef):
        item = item.whole()
    if isinstance(item, PaddedRef):
        raise BadRegion(f"{what}= names a padded tensor without an index")
    if not isinstance(item, RegionRef):
        raise BadCall(
            f"{what}= gives {item!r}, which is not a region",
            hint="return regions such as a[i*32:i*32+32, j], or () for none",
        )
    if item.owner is not ctx.owner:
        raise BadCall(f"{what}= names '{item}', which is of another program")
    is_event = isinstance(item.target, EventTensor)
    if is_event != (what in ("waits", "notifies")):
        raise BadEvent(
            f"{what}= names the {'event' if is_event else 'data'} tensor '{item.target.name}'",
            hint="events go into waits= and notifies=, tensors into reads=, writes=, accumulates=",
        )
    return item


def _check_region(ctx: CallContext, r: RegionRef, coords: tuple[str, ...], what: str) -> None:
    for axis in r.region.axes:
        own = (axis.var,) if isinstance(axis, Rows) else ()
        exprs = region_exprs(Region(r.region.tensor, (axis,)))
        check_scope(ctx, exprs, (*coords, *own), f"'{r.region}' in {what}=")


def check_roles(
    call: str, modes: Mapping[str, tuple[RegionRef, ...]], grid: tuple[GridAxis, ...],
    unordered: bool,
) -> None:
    """Refuse writes to read-only tensors, and ordered accumulation by run-time data."""
    for mode in ("writes", "accumulates"):
        for r in modes[mode]:
            tensor = r.target
            assert isinstance(tensor, Tensor)
            if tensor.role.read_only:
                raise BadRole(f"call {call} writes the {tensor.role.value} '{tensor.name}'")
            if r.region.pad is not None:
                raise BadRegion(f"call {call} writes the padded region '{r}'",
                                hint="padding is for reads")
    for r in modes["accumulates"]:
        if isinstance(r.target, Tensor) and r.target.dtype is DType.bool_:
            raise BadRole(f"call {call} accumulates into the bool tensor '{r.target.name}'")
        if not unordered and is_data_dependent(r.region):
            raise OrderedDataAccumulate(
                f"call {call} accumulates in order into '{r}', which depends on run-time data"
            )
        if not unordered and loads_of(*(a.extent for a in grid)):
            raise OrderedDataAccumulate(
                f"call {call} accumulates in order over a grid whose extents are run-time data"
            )
    if unordered and not modes["accumulates"]:
        raise BadCall(f"call {call} is unordered but accumulates nothing")
    if not modes["accumulates"] and not modes["writes"]:
        raise BadCall(f"call {call} writes nothing", hint="give writes= or accumulates=")


def check_captures(
    call: str, body: Body, grid: tuple[GridAxis, ...], regions: Mapping[str, tuple[Region, ...]]
) -> None:
    """Refuse run-time data that is neither an argument of the body nor read by the call's maps."""
    outside = [a.extent for a in grid]
    outside += [e for group in regions.values() for r in group for e in region_exprs(r)]
    known = {load.tensor for load in loads_of(*outside)}
    for load in loads_of(*body_exprs(body)):
        if load.tensor not in known:
            raise BadBody(
                f"the body of call {call} reads '{load}', which is not an argument",
                hint=f"add {load.tensor} to reads= and take the value from the tile",
            )
