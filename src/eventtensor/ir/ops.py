"""The table of ops: one `OpSpec` for each op of the tile language.

It has the text form of an op, its operands, the type of its result, and its requirements on
extents. Text, renaming, dead code and walks over operands follow from it. Meaning and code are
handlers of the interpreter and the back ends (ir/handler_table.py).
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
    """The kind of a field of a node, which decides its text."""

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
class ExtentRequirement:
    """An extent must be `min_extent` or more. A minimum of 1 or more matters only where the result
    has elements. `what` the op does, for messages."""

    extent: Node
    min_extent: int
    what: str


KEYWORDS = (Form.integer, Form.integers)
Types = Sequence[t.TileType]


@dataclass(frozen=True, slots=True)
class OpSpec:
    """`names` are the names in text, each with its value of the field `tag`. `result` gives the
    type from those of the operands; without it the statement has the type. The proof shows
    `requirements` (analysis/extent_requirements.py). `rereads`: operands of which an element is
    read more than once, so that a back end should materialize them."""

    node: type[Any]
    names: Mapping[str, Any]
    tag: str | None
    fields: tuple[tuple[str, Form], ...]
    result: Callable[[Any, Types], t.TileType] | None
    requirements: Callable[[Any, t.TileType, Types], Iterable[ExtentRequirement]]
    rereads: Callable[[Any, t.TileType, Types], tuple[int, ...]]

    def name(self, op: t.Op) -> str:
        if self.tag is None:
            return next(iter(self.names))
        tag = getattr(op, self.tag)
        return next(name for name, stands_for in self.names.items() if stands_for == tag)

    def fields_of_form(self, *forms: Form) -> Iterator[str]:
        return (field for field, form in self.fields if form in forms)


# ---- types of results ----------------------------------------------------------------------


def _same_type(op: Any, types: Types) -> t.TileType:
    return types[0]


def _binary_type(op: t.Binary, types: Types) -> t.TileType:
    return t.TileType(FUNCTIONS[op.op].result(types[0].dtype), types[0].shape)


def _without(x: t.TileType, axis: int) -> tuple[Node, ...]:
    return x.shape[:axis] + x.shape[axis + 1 :]


def _reduce_type(op: t.Reduce, types: Types) -> t.TileType:
    return t.TileType(types[0].dtype, _without(types[0], op.axis))


def _matmul_type(op: t.MatMul, types: Types) -> t.TileType:
    a, b = types
    return t.TileType(DType.f32, (a.shape[0], b.shape[1]))


def _transpose_type(op: t.Transpose, types: Types) -> t.TileType:
    return t.TileType(types[0].dtype, tuple(types[0].shape[k] for k in op.perm))


def _concat_type(op: t.Concat, types: Types) -> t.TileType:
    total: Node = Const(0)
    for x in types:
        total = add(total, x.shape[op.axis])
    first = types[0].shape
    return t.TileType(types[0].dtype, (*first[: op.axis], total, *first[op.axis + 1 :]))


def _gather_type(op: t.Gather, types: Types) -> t.TileType:
    x, index = types
    return t.TileType(x.dtype, x.shape[: op.axis] + index.shape + x.shape[op.axis + 1 :])


def _topk_type(op: t.TopK, types: Types) -> t.TileType:
    dtype = DType.i32 if op.indices else types[0].dtype
    return t.TileType(dtype, (*types[0].shape[:-1], Const(op.k)))


# ---- requirements on extents ---------------------------------------------------------------


def _no_requirements(op: Any, type: t.TileType, types: Types) -> Iterable[ExtentRequirement]:
    return ()


def _require_new_extents(op: Any, type: t.TileType, types: Types) -> Iterable[ExtentRequirement]:
    """New extents, which no operand has, are not negative."""
    old = {e for x in types for e in x.shape}
    return (ExtentRequirement(e, 0, "makes a tile of") for e in type.shape if e not in old)


def _require_one(op: t.ArgMax, type: t.TileType, types: Types) -> Iterable[ExtentRequirement]:
    return (ExtentRequirement(types[0].shape[-1], 1, "takes the largest of"),)


def _require_k(op: t.TopK, type: t.TileType, types: Types) -> Iterable[ExtentRequirement]:
    return (ExtentRequirement(types[0].shape[-1], op.k, f"takes the {op.k} largest of"),)


def _require_entry(op: t.Gather, type: t.TileType, types: Types) -> Iterable[ExtentRequirement]:
    return (ExtentRequirement(types[0].shape[op.axis], 1, "gathers from"),)


# ---- operands that are read again ----------------------------------------------------------


def _read_once(op: Any, type: t.TileType, types: Types) -> tuple[int, ...]:
    return ()


def _reread_all(op: Any, type: t.TileType, types: Types) -> tuple[int, ...]:
    return operands(op)


def _reread_repeated(op: t.Broadcast, type: t.TileType, types: Types) -> tuple[int, ...]:
    return (op.x,) if repeats(types[0], type) else ()


def repeats(x: t.TileType, to: t.TileType) -> bool:
    """True if a broadcast reads an element of x more than once."""
    return len(to.shape) > len(x.shape) or any(
        a == Const(1) and b != Const(1) for a, b in zip(x.shape, to.shape, strict=True)
    )


def _gather_rereads(op: t.Gather, type: t.TileType, types: Types) -> tuple[int, ...]:
    """From a vector, each index takes one element, so the index is read once."""
    return (op.x,) if len(types[0].shape) == 1 else (op.x, op.index)


# ---- the table -----------------------------------------------------------------------------

_X = ("x", Form.value)
_A, _B = ("a", Form.value), ("b", Form.value)
_AXIS = ("axis", Form.integer)


def _own_names(names: Sequence[str]) -> dict[str, str]:
    return {name: name for name in names}


OPS: tuple[OpSpec, ...] = (
    OpSpec(t.Arg, {"arg": None}, None, (("arg", Form.arg),), None, _no_requirements, _read_once),
    OpSpec(t.Literal, {"literal": None}, None, (("value", Form.number),), None,
        _no_requirements, _read_once),
    OpSpec(t.Index, {"index": None}, None, (("expr", Form.expr),), None,
        _no_requirements, _read_once),
    OpSpec(t.Unary, _own_names(UNARY), "op", (_X,), _same_type, _no_requirements, _read_once),
    OpSpec(t.Binary, _own_names(BINARY), "op", (_A, _B), _binary_type,
        _no_requirements, _read_once),
    OpSpec(t.Where, {"where": None}, None, (("cond", Form.value), _A, _B),
        lambda op, types: types[1], _no_requirements, _read_once),
    OpSpec(t.Cast, {"cast": None}, None, (_X, ("dtype", Form.dtype)),
        lambda op, types: t.TileType(op.dtype.tile_dtype, types[0].shape),
        _no_requirements, _read_once),
    OpSpec(t.Broadcast, {"broadcast": None}, None, (_X,), None,
        _require_new_extents, _reread_repeated),
    OpSpec(t.Reduce, _own_names(t.REDUCE), "op", (_X, _AXIS), _reduce_type,
        _no_requirements, _read_once),
    OpSpec(t.MatMul, {"matmul": None}, None, (_A, _B), _matmul_type, _no_requirements, _reread_all),
    OpSpec(t.Transpose, {"transpose": None}, None, (_X, ("perm", Form.integers)),
        _transpose_type, _no_requirements, _read_once),
    OpSpec(t.Reshape, {"reshape": None}, None, (_X,), None, _require_new_extents, _read_once),
    OpSpec(t.Concat, {"concat": None}, None, (("xs", Form.values), _AXIS),
        _concat_type, _no_requirements, _read_once),
    OpSpec(t.Iota, {"iota": None}, None, (), None, _require_new_extents, _read_once),
    OpSpec(t.SliceOf, {"slice": None}, None, (_X, ("axes", Form.axes)), None, _require_new_extents,
        _read_once),
    OpSpec(t.Update, {"update": None}, None, (_X, ("axes", Form.axes), ("value", Form.value)),
        _same_type, _no_requirements, _read_once),
    OpSpec(t.Scan, {f"cum{op}": op for op in t.SCAN}, "op", (_X, _AXIS), _same_type,
        _no_requirements, _read_once),
    OpSpec(t.Sort, {"sort": False, "argsort": True}, "indices", (_X, _AXIS),
        lambda op, types: t.TileType(DType.i32 if op.indices else types[0].dtype, types[0].shape),
        _no_requirements, _reread_all),
    OpSpec(t.Gather, {"gather": None}, None, (_X, ("index", Form.value), _AXIS),
        _gather_type, _require_entry, _gather_rereads),
    OpSpec(t.ArgMax, {"argmax": None}, None, (_X,),
        lambda op, types: t.TileType(DType.i32, types[0].shape[:-1]), _require_one, _reread_all),
    OpSpec(t.TopK, {"topk_values": False, "topk_indices": True}, "indices",
        (_X, ("k", Form.integer)), _topk_type, _require_k, _reread_all),
    OpSpec(t.Histogram, {"histogram": None}, None,
        (("index", Form.value), ("weights", Form.values)), None, _no_requirements, _read_once),
)  # fmt: skip

OP_SPECS: dict[type[Any], OpSpec] = {row.node: row for row in OPS}
_BY_NAME = {
    (name, frozenset(row.fields_of_form(*KEYWORDS))): row for row in OPS for name in row.names
}
NAMES = frozenset(name for row in OPS for name in row.names)
_VALUES = {row.node: tuple(row.fields_of_form(Form.value, Form.values)) for row in OPS}

if set(OP_SPECS) != set(get_args(t.Op)):
    odd = ", ".join(sorted(node.__name__ for node in set(OP_SPECS) ^ set(get_args(t.Op))))
    raise OpWithoutEntry(f"ir/ops.py and the union Op in ir/tile.py differ in {odd}")


# ---- what follows from the table -----------------------------------------------------------


def find_op(name: str, keywords: Iterable[str]) -> OpSpec | None:
    """The op of a name in text. `max(%1, %2)` and `max(%1, axis=0)` are two ops."""
    return _BY_NAME.get((name, frozenset(keywords)))


def operands(op: t.Op) -> tuple[int, ...]:
    """The value ids that an op takes, without those in index expressions."""
    found: list[int] = []
    for name in _VALUES[type(op)]:
        value = getattr(op, name)
        found.extend(value if isinstance(value, tuple) else (value,))
    return tuple(found)


def op_exprs(op: t.Op) -> Iterator[Node]:
    """The index expressions that an op takes."""
    row = OP_SPECS[type(op)]
    yield from (getattr(op, name) for name in row.fields_of_form(Form.expr))
    for name in row.fields_of_form(Form.axes):
        for axis in getattr(op, name):
            yield from axis_exprs(axis)


def result_type(op: t.Op, types: Types) -> t.TileType:
    """The result type of an op that follows from its operands."""
    rule = OP_SPECS[type(op)].result
    assert rule is not None, f"the type of {op} is given"
    return rule(op, types)


def requirements_of(op: t.Op, type: t.TileType, types: Types) -> Iterable[ExtentRequirement]:
    """The requirements of an op of this type on extents."""
    return OP_SPECS[op.__class__].requirements(op, type, types)


def rereads(op: t.Op, type: t.TileType, types: Types) -> tuple[int, ...]:
    """Operands of which an element is read more than once."""
    return OP_SPECS[op.__class__].rereads(op, type, types)


def map_op(op: t.Op, value: Callable[[int], int], expr: Callable[[Node], Node]) -> t.Op:
    """The op with other values and expressions."""
    changed: dict[str, Any] = {}
    for name, form in OP_SPECS[type(op)].fields:
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
