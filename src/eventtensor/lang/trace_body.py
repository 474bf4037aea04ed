"""Traces a task body for one call: from regions and a Python function to ir.tile.Body.

The body runs once, on symbolic tiles. Errors that Python raises in it become errors about the body.
The statements themselves come from lang/tracer.py.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import BadBody, NothingWritten, NotTraceable, UnknownName
from ..ir.expr import Node
from ..ir.tensor import Region, Tensor, tile_shape
from ..ir.tile import Arg, ArgMode, Body, BodyArg, TileType
from ..public_names import BODY_NAMES
from ..source_location import error_place
from .numpy_hints import hint_for
from .signature_hints import parameters_hint
from .symbolic_tile import Scalar, Tile
from .task import Signature, Task, signature_of
from .tile_methods import method_names
from .trace_cleanup import clean_trace
from .tracer import Tracer, active_tracer
from .write_args import AccumulateArg, WriteArg


@dataclass(frozen=True, slots=True)
class Operand:
    mode: str
    region: Region
    tensor: Tensor


def trace_body(
    kind: Task, operands: tuple[Operand, ...], scope: Mapping[str, Node]
) -> Body:
    """Run the body once on symbolic tiles. `scope` holds the coordinates, loop variables and dims
    that keyword-only arguments may name."""
    signature = signature_of(kind)
    args = _arguments(kind, signature, operands)
    keywords = _keywords(kind, signature, scope)
    with active_tracer(Tracer(frozenset(scope))) as tr:
        result = _run(kind, _symbolic_args(tr, args), keywords)
        if result is not None:
            raise NotTraceable(
                f"task {kind.name} returns a value", hint="assign results to the write arguments"
            )
        if len(tr.scopes) != 1:
            raise NotTraceable("`break` or `return` inside an et.range loop")
        _check_assigned(kind, args, tr)
        stmts, pairs = clean_trace(tr.scope.stmts, tr.equal_extents, tr.alias)
    return Body(args, stmts, pairs)


def _run(kind: Task, args: list[Any], keywords: dict[str, Scalar]) -> object:
    """Turn Python's own errors about tiles into errors about the body."""
    try:
        return kind.body(*args, **keywords)
    except (TypeError, AttributeError) as error:
        raise _body_error(kind, error) from error


def _body_error(kind: Task, error: TypeError | AttributeError) -> NotTraceable:
    place, name = error_place(error), getattr(error, "name", None)
    if not isinstance(name, str):
        takes = parameters_hint(str(error)) or UnknownName.default_hint
        return NotTraceable(f"task {kind.name} does what tiles cannot: {error}", place=place,
                            hint=takes)
    hint = hint_for(name, BODY_NAMES, "et", method_names(Tile))
    if getattr(error, "obj", None) is sys.modules["eventtensor"]:
        return UnknownName(f"eventtensor has no '{name}'", place=place, hint=hint)
    return NotTraceable(f"task {kind.name} does what tiles cannot: {error}", place=place, hint=hint)


def _arguments(
    kind: Task, signature: Signature, operands: tuple[Operand, ...]
) -> tuple[BodyArg, ...]:
    if len(signature.args) != len(operands):
        modes = ", ".join(f"{o.mode} {o.region}" for o in operands)
        raise BadBody(
            f"task {kind.name} takes {len(signature.args)} arguments"
            f" ({', '.join(signature.args)}) and the call gives {len(operands)}: {modes}"
        )
    return tuple(
        BodyArg(
            name, o.mode, TileType(o.tensor.dtype.tile_dtype, tile_shape(o.region, o.tensor)),
            o.tensor.dtype,
        )
        for name, o in zip(signature.args, operands, strict=True)
    )


def _keywords(kind: Task, signature: Signature, scope: Mapping[str, Node]) -> dict[str, Scalar]:
    found = {}
    for name, optional in signature.keywords:
        if name in scope:
            found[name] = Scalar(scope[name])
        elif not optional:
            known = ", ".join(sorted(scope)) or "none"
            raise BadBody(
                f"task {kind.name} asks for '{name}', which is no coordinate, loop variable or dim"
                f" of the call (known: {known})"
            )
    return found


def _symbolic_args(tr: Tracer, args: tuple[BodyArg, ...]) -> list[Any]:
    symbols: list[Any] = []
    for k, a in enumerate(args):
        if a.mode == ArgMode.read:
            symbols.append(Tile(tr, tr.emit(Arg(k), a.type), is_read_only=True))
        else:
            kind = WriteArg if a.mode == ArgMode.write else AccumulateArg
            symbols.append(kind(tr, k, a.name, a.type))
    return symbols


def _check_assigned(kind: Task, args: tuple[BodyArg, ...], tr: Tracer) -> None:
    for k, a in enumerate(args):
        if a.mode != ArgMode.read and k not in tr.assigned_args:
            raise NothingWritten(f"task {kind.name} never assigns its {a.mode} argument '{a.name}'")
