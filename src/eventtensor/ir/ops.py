"""The table of ops: one row for each op of the tile language.

A row says how an op is written, which values and expressions it takes, what type it gives, and
what it needs of extents. Text, renaming, dead code and the walks over operands follow from it.
Meaning and code are handlers that each layer registers by node class (ir/handler_table.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, get_args

from ..errors import OpWithoutEntry
from . import tile as t
from .elementwise import BINARY, FUNCTIONS, UNARY
from .expr import Const, Node, add
from .tensor import DType, Point, Slice, axis_exprs


class Form(Enum):
    """What a field of a node is, and so how it stands in text."""

    value = "%7"
    values = "%7, %8"  # one at least
    axes = "[0:4, i]"  # of the value before it
    arg = "the name of an argument"
    number = "1.5"
    expr = "an index expression"
    dtype = "f32"
    integer = "name=1"
    integers = "name=[0, 1]"


@dataclass(frozen=True, slots=True)
class Need:
    """An extent that has to be at least so much. One of 1 or more matters only where the result
    has elements. `what` the op does, for messages."""

    extent: Node
    least: int
    what: str


KEYWORDS = (Form.integer, Form.integers)
Types = Sequence[t.TileType]


@dataclass(frozen=True, slots=True)
class Row:
    """`names` in text, with what each stands for in the field `tag`. `result`: the type that
    follows from those of the operands; none, if the statement says it. `needs`: what extents must
    be, which the proof shows (analysis/extent_requirements.py). `rereads`: operands of which an
    element is read
    more than once, so that they deserve memory of their own."""

    node: type[Any]
    names: Mapping[str, Any]
    tag: str | None
    fields: tuple[tuple[str, Form], ...]
    result: Callable[[Any, Types], t.TileType] | None
    needs: Callable[[Any, t.TileType, Types], Iterable[Need]]
    rereads: Callable[[Any, t.TileType, Types], tuple[int, ...]]

    def name(self, op: t.Op) -> str:
        if self.tag is None:
            return next(iter(self.names))
        tag = getattr(op, self.tag)
        return next(name for name, stands_for in self.names.items() if stands_for == tag)

    def of_form(self, *forms: Form) -> Iterator[str]:
        return (field for field, form in self.fields if form in forms)


# ---- types of results ----------------------------------------------------------------------


def _same(op: Any, types: Types) -> t.TileType:
    return types[0]


def _binary(op: t.Binary, types: Types) -> t.TileType:
    return t.TileType(FUNCTIONS[op.op].result(types[0].dtype), types[0].shape)


def _without(x: t.TileType, axis: int) -> tuple[Node, ...]:
    return x.shape[:axis] + x.shape[axis + 1 :]


def _reduced(op: t.Reduce, types: Types) -> t.TileType:
    return t.TileType(types[0].dtype, _without(types[0], op.axis))


def _multiplied(op: t.MatMul, types: Types) -> t.TileType:
    a, b = types
    return t.TileType(DType.f32, (a.shape[0], b.shape[1]))


def _transposed(op: t.Transpose, types: Types) -> t.TileType:
    return t.TileType(types[0].dtype, tuple(types[0].shape[k] for k in op.perm))


def _concatenated(op: t.Concat, types: Types) -> t.TileType:
    total: Node = Const(0)
    for x in types:
        total = add(total, x.shape[op.axis])
    first = types[0].shape
    return t.TileType(types[0].dtype, (*first[: op.axis], total, *first[op.axis + 1 :]))


def _gathered(op: t.Gather, types: Types) -> t.TileType:
    x, index = types
    return t.TileType(x.dtype, x.shape[: op.axis] + index.shape + x.shape[op.axis + 1 :])


def _best(op: t.TopK, types: Types) -> t.TileType:
    dtype = DType.i32 if op.indices else types[0].dtype
    return t.TileType(dtype, (*types[0].shape[:-1], Const(op.k)))


# ---- what ops need of extents --------------------------------------------------------------


def _nothing(op: Any, type: t.TileType, types: Types) -> Iterable[Need]:
    return ()


def _new_extents(op: Any, type: t.TileType, types: Types) -> Iterable[Need]:
    """Extents that no operand has."""
    old = {e for x in types for e in x.shape}
    return (Need(e, 0, "makes a tile of") for e in type.shape if e not in old)


def _one(op: t.ArgMax, type: t.TileType, types: Types) -> Iterable[Need]:
    return (Need(types[0].shape[-1], 1, "takes the largest of"),)


def _so_many(op: t.TopK, type: t.TileType, types: Types) -> Iterable[Need]:
    return (Need(types[0].shape[-1], op.k, f"takes the {op.k} largest of"),)


def _any_entry(op: t.Gather, type: t.TileType, types: Types) -> Iterable[Need]:
    return (Need(types[0].shape[op.axis], 1, "gathers from"),)


# ---- operands that are read again ----------------------------------------------------------


def _once(op: Any, type: t.TileType, types: Types) -> tuple[int, ...]:
    return ()


def _all(op: Any, type: t.TileType, types: Types) -> tuple[int, ...]:
    return operands(op)


def _if_repeated(op: t.Broadcast, type: t.TileType, types: Types) -> tuple[int, ...]:
    return (op.x,) if repeats(types[0], type) else ()


def repeats(x: t.TileType, to: t.TileType) -> bool:
    """True if a broadcast reads an element of x more than once."""
    return len(to.shape) > len(x.shape) or any(
        a == Const(1) and b != Const(1) for a, b in zip(x.shape, to.shape, strict=True)
    )


def _picked(op: t.Gather, type: t.TileType, types: Types) -> tuple[int, ...]:
    """Of a line, each entry of the index has one element."""
    return (op.x,) if len(types[0].shape) == 1 else (op.x, op.index)


# ---- the table -----------------------------------------------------------------------------

_X = ("x", Form.value)
_A, _B = ("a", Form.value), ("b", Form.value)
_AXIS = ("axis", Form.integer)


def _itself(names: Sequence[str]) -> dict[str, str]:
    return {name: name for name in names}


OPS: tuple[Row, ...] = (
    Row(t.Arg, {"arg": None}, None, (("arg", Form.arg),), None, _nothing, _once),
    Row(t.Literal, {"literal": None}, None, (("value", Form.number),), None, _nothing, _once),
    Row(t.Index, {"index": None}, None, (("expr", Form.expr),), None, _nothing, _once),
    Row(t.Unary, _itself(UNARY), "op", (_X,), _same, _nothing, _once),
    Row(t.Binary, _itself(BINARY), "op", (_A, _B), _binary, _nothing, _once),
    Row(t.Where, {"where": None}, None, (("cond", Form.value), _A, _B),
        lambda op, types: types[1], _nothing, _once),
    Row(t.Cast, {"cast": None}, None, (_X, ("dtype", Form.dtype)),
        lambda op, types: t.TileType(op.dtype.tile_dtype, types[0].shape), _nothing, _once),
    Row(t.Broadcast, {"broadcast": None}, None, (_X,), None, _new_extents, _if_repeated),
    Row(t.Reduce, _itself(t.REDUCE), "op", (_X, _AXIS), _reduced, _nothing, _once),
    Row(t.MatMul, {"matmul": None}, None, (_A, _B), _multiplied, _nothing, _all),
    Row(t.Transpose, {"transpose": None}, None, (_X, ("perm", Form.integers)),
        _transposed, _nothing, _once),
    Row(t.Reshape, {"reshape": None}, None, (_X,), None, _new_extents, _once),
    Row(t.Concat, {"concat": None}, None, (("xs", Form.values), _AXIS),
        _concatenated, _nothing, _once),
    Row(t.Iota, {"iota": None}, None, (), None, _new_extents, _once),
    Row(t.SliceOf, {"slice": None}, None, (_X, ("axes", Form.axes)), None, _new_extents, _once),
    Row(t.Update, {"update": None}, None, (_X, ("axes", Form.axes), ("value", Form.value)),
        _same, _nothing, _once),
    Row(t.Scan, {f"cum{op}": op for op in t.SCAN}, "op", (_X, _AXIS), _same, _nothing, _once),
    Row(t.Sort, {"sort": False, "argsort": True}, "indices", (_X, _AXIS),
        lambda op, types: t.TileType(DType.i32 if op.indices else types[0].dtype, types[0].shape),
        _nothing, _all),
    Row(t.Gather, {"gather": None}, None, (_X, ("index", Form.value), _AXIS),
        _gathered, _any_entry, _picked),
    Row(t.ArgMax, {"argmax": None}, None, (_X,),
        lambda op, types: t.TileType(DType.i32, types[0].shape[:-1]), _one, _all),
    Row(t.TopK, {"topk_values": False, "topk_indices": True}, "indices",
        (_X, ("k", Form.integer)), _best, _so_many, _all),
    Row(t.Histogram, {"histogram": None}, None,
        (("index", Form.value), ("weights", Form.values)), None, _nothing, _once),
)  # fmt: skip

ROWS: dict[type[Any], Row] = {row.node: row for row in OPS}
_BY_NAME = {(name, frozenset(row.of_form(*KEYWORDS))): row for row in OPS for name in row.names}
NAMES = frozenset(name for row in OPS for name in row.names)
_VALUES = {row.node: tuple(row.of_form(Form.value, Form.values)) for row in OPS}

if set(ROWS) != set(get_args(t.Op)):
    odd = ", ".join(sorted(node.__name__ for node in set(ROWS) ^ set(get_args(t.Op))))
    raise OpWithoutEntry(f"ir/ops.py and the union Op in ir/tile.py differ in {odd}")


# ---- what follows from a row ---------------------------------------------------------------


def find_row(name: str, keywords: Iterable[str]) -> Row | None:
    """By the name in text; `max(%1, %2)` is another op than `max(%1, axis=0)`."""
    return _BY_NAME.get((name, frozenset(keywords)))


def operands(op: t.Op) -> tuple[int, ...]:
    """Value ids an op takes (index expressions aside)."""
    found: list[int] = []
    for name in _VALUES[type(op)]:
        value = getattr(op, name)
        found.extend(value if isinstance(value, tuple) else (value,))
    return tuple(found)


def op_exprs(op: t.Op) -> Iterator[Node]:
    """Index expressions an op takes."""
    row = ROWS[type(op)]
    yield from (getattr(op, name) for name in row.of_form(Form.expr))
    for name in row.of_form(Form.axes):
        for axis in getattr(op, name):
            yield from axis_exprs(axis)


def result_type(op: t.Op, types: Types) -> t.TileType:
    """The type of an op whose row tells it."""
    rule = ROWS[type(op)].result
    assert rule is not None, f"the type of {op} is given"
    return rule(op, types)


def needs_of(op: t.Op, type: t.TileType, types: Types) -> Iterable[Need]:
    """What an op of this type needs of extents."""
    return ROWS[op.__class__].needs(op, type, types)


def rereads(op: t.Op, type: t.TileType, types: Types) -> tuple[int, ...]:
    """Operands of which an element is read more than once."""
    return ROWS[op.__class__].rereads(op, type, types)


def map_op(op: t.Op, value: Callable[[int], int], expr: Callable[[Node], Node]) -> t.Op:
    """The op with other values and expressions."""
    changed: dict[str, Any] = {}
    for name, form in ROWS[type(op)].fields:
        old = getattr(op, name)
        if form is Form.value:
            changed[name] = value(old)
        elif form is Form.values:
            changed[name] = tuple(value(x) for x in old)
        elif form is Form.expr:
            changed[name] = expr(old)
        elif form is Form.axes:
            changed[name] = map_axes(old, expr)
    return replace(op, **changed)


def map_axes(axes: tuple[t.SubAxis, ...], expr: Callable[[Node], Node]) -> tuple[t.SubAxis, ...]:
    return tuple(
        Point(expr(a.index)) if isinstance(a, Point) else Slice(expr(a.start), expr(a.stop))
        for a in axes
    )


def body_exprs(body: t.Body) -> Iterator[Node]:
    """Index expressions of a body: loop extents, indices and sub-tile axes."""
    for s in t.all_stmts(body.stmts):
        match s:
            case t.For(_, extent, _, _):
                yield extent
            case t.Let(_, op, _):
                yield from op_exprs(op)
            case t.Store(_, axes, _):
                for a in axes:
                    yield from axis_exprs(a)
            case _:
                pass
