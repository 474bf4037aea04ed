"""Reads index expressions, axes and regions back from text, through Python's `ast`.

The canonical constructors rebuild each expression, so a printed one reads back equal. Bad text
raises `Unreadable`, to which ir/parse.py adds the line.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping

from ..errors import NonAffine
from .expr import (
    Const,
    Dim,
    Node,
    Var,
    add,
    compare,
    floordiv,
    load,
    maximum,
    minimum,
    mod,
    mul,
    select,
)
from .tensor import Axis, Pad, Point, Region, Rows, Slice

# `%7` is a value where an operand may begin, and a remainder after an operand.
_VALUE = re.compile(r"(?<![\w)\]])%(\d+)")
_MARK = "__v"


class Unreadable(Exception):
    """The text does not read back. The line is not known here."""


def python_ast(source: str) -> ast.expr:
    code = _VALUE.sub(rf"{_MARK}\1", source.strip()).replace("[]", "[()]")
    try:
        return ast.parse(code, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Unreadable(f"'{source.strip()}' is not an expression") from error


def value_id(node: ast.expr) -> int:
    """`%7` as 7."""
    if isinstance(node, ast.Name) and node.id.startswith(_MARK):
        return int(node.id[len(_MARK) :])
    raise Unreadable(f"'{ast.unparse(node)}' is not a value such as %7")


def number(node: ast.expr) -> float | int | bool:
    """A literal, with inf and nan."""
    match node:
        case ast.Constant(value=bool() | int() | float() as v):
            return v
        case ast.Name(id="inf"):
            return math.inf
        case ast.Name(id="nan"):
            return math.nan
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -number(inner)
        case _:
            raise Unreadable(f"'{ast.unparse(node)}' is not a number")


def integer(node: ast.expr) -> int:
    found = number(node)
    if isinstance(found, bool) or not isinstance(found, int):
        raise Unreadable(f"'{ast.unparse(node)}' is not an integer")
    return found


def integers(node: ast.expr) -> tuple[int, ...]:
    if not isinstance(node, ast.List):
        raise Unreadable(f"'{ast.unparse(node)}' is not a list of integers")
    return tuple(integer(e) for e in node.elts)


def padding(lo: ast.expr, hi: ast.expr, value: ast.expr) -> Pad:
    """Two lists with an entry for each axis. A clipped axis has None in both."""
    ends, clipped = [], []
    for node in (lo, hi):
        entries = node.elts if isinstance(node, ast.List) else []
        none = {k for k, e in enumerate(entries) if isinstance(e, ast.Constant) and e.value is None}
        clipped.append(frozenset(none))
        zero = [ast.Constant(0) if k in none else e for k, e in enumerate(entries)]
        ends.append(integers(ast.List(zero) if isinstance(node, ast.List) else node))
    if clipped[0] != clipped[1]:
        raise Unreadable("padding is None at one end of an axis only")
    return Pad(ends[0], ends[1], float(number(value)), clipped[0])


class ExprReader:
    """Reads expressions. Names in `dims` are dims, all others are variables."""

    def __init__(self, dims: Mapping[str, Dim]) -> None:
        self.dims = dims

    def expr(self, source: str) -> Node:
        return self.node(python_ast(source))

    def exprs(self, source: str) -> tuple[Node, ...]:
        """A comma-separated list, perhaps empty."""
        if not source.strip():
            return ()
        return tuple(self.node(e) for e in _elements(python_ast(f"({source},)")))

    def node(self, tree: ast.expr) -> Node:
        try:
            return self._node(tree)
        except NonAffine as error:
            raise Unreadable(error.message) from error

    def _node(self, tree: ast.expr) -> Node:
        match tree:
            case ast.Constant(value=int() as v) if not isinstance(v, bool):
                return Const(v)
            case ast.Name(id=name):
                return self._name(name)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return mul(Const(-1), self._node(inner))
            case ast.BinOp(left=a, op=op, right=b):
                return _arithmetic(op, self._node(a), self._node(b))
            case ast.Compare(left=a, ops=[op], comparators=[b]):
                return compare(_comparison(op), self._node(a), self._node(b))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return _function(name, [self._node(a) for a in args])
            case ast.Subscript(value=ast.Name(id=name), slice=index):
                return load(name, tuple(self._node(i) for i in _elements(index)))
            case _:
                raise Unreadable(f"'{ast.unparse(tree)}' is not an index expression")

    def _name(self, name: str) -> Node:
        if name.startswith(_MARK):
            return Var(f"%{name[len(_MARK) :]}")
        return self.dims.get(name, Var(name))

    # ---- regions ----------------------------------------------------------------------------

    def axis(self, tree: ast.expr) -> Axis:
        match tree:
            case ast.Slice(lower=ast.expr() as a, upper=ast.expr() as b, step=None):
                return Slice(self.node(a), self.node(b))
            case ast.Slice():
                raise Unreadable("a slice needs both ends and no step")
            case ast.Call(func=ast.Name(id="rows"), args=[ast.Name(id=var), n, index]):
                return Rows(var, self.node(n), self.node(index))
            case _:
                return Point(self.node(tree))

    def axes(self, tree: ast.expr) -> tuple[Axis, ...]:
        return tuple(self.axis(e) for e in _elements(tree))

    def sub_axes(self, tree: ast.expr) -> tuple[Point | Slice, ...]:
        """Axes of a sub-tile, which has no gathered rows."""
        found = []
        for a in self.axes(tree):
            if isinstance(a, Rows):
                raise Unreadable("a sub-tile has no gathered rows")
            found.append(a)
        return tuple(found)

    def region(self, source: str) -> Region:
        match python_ast(source):
            case ast.Subscript(value=ast.Name(id=name), slice=index):
                return Region(name, self.axes(index))
            case ast.Subscript(
                value=ast.Call(
                    func=ast.Attribute(value=ast.Name(id=name), attr="padded"),
                    args=[lo, hi, value],
                ),
                slice=index,
            ):
                return Region(name, self.axes(index), padding(lo, hi, value))
            case _:
                raise Unreadable(f"'{source}' is not a region")


def _elements(index: ast.expr) -> list[ast.expr]:
    return list(index.elts) if isinstance(index, ast.Tuple) else [index]


def _arithmetic(op: ast.operator, a: Node, b: Node) -> Node:
    match op:
        case ast.Add():
            return add(a, b)
        case ast.Sub():
            return add(a, mul(Const(-1), b))
        case ast.Mult():
            return mul(a, b)
        case ast.FloorDiv():
            return floordiv(a, b)
        case ast.Mod():
            return mod(a, b)
        case _:
            raise Unreadable(f"operator {type(op).__name__} in an index expression")


def _comparison(op: ast.cmpop) -> str:
    if isinstance(op, ast.LtE):
        return "<="
    if isinstance(op, ast.Eq):
        return "=="
    raise Unreadable(f"comparison {type(op).__name__} in an index expression")


def _function(name: str, args: list[Node]) -> Node:
    match name, args:
        case "min", [a, b]:
            return minimum(a, b)
        case "max", [a, b]:
            return maximum(a, b)
        case "select", [c, a, b]:
            return select(c, a, b)
        case _:
            raise Unreadable(f"{name} with {len(args)} arguments in an index expression")
