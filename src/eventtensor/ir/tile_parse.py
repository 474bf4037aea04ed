"""Reads task bodies back from the text that ir/tile_text.py prints."""

from __future__ import annotations

import ast
import re
from typing import Any

from .indented_text import Line, split_once
from .ops import KEYWORDS, NAMES, Form, find_op, operands
from .parse_expr import ExprReader, Unreadable, integer, integers, number, python_ast, value_id
from .tensor import DType
from .tile import (
    Accumulate,
    ArgMode,
    Body,
    BodyArg,
    Carry,
    For,
    Let,
    Op,
    Stmt,
    Store,
    TileType,
)

_TYPE = re.compile(r"(\w+)\[(.*)\]")
_CARRY = re.compile(r"carry (%\d+) = (%\d+); next (%\d+); out (%\d+)")
_MODES = (ArgMode.read, ArgMode.accumulate, ArgMode.write)


def read_type(reader: ExprReader, source: str) -> TileType:
    found = _TYPE.fullmatch(source.strip())
    if found is None:
        raise Unreadable(f"'{source.strip()}' is not a type such as f32[n, 4]")
    return TileType(read_dtype(found[1]), reader.exprs(found[2]))


def read_dtype(name: str) -> DType:
    for d in DType:
        if d.value == name:
            return d
    raise Unreadable(f"'{name}' is not a dtype")


class BodyReader:
    """Reads the lines under `body`. Values must be defined before they are used."""

    def __init__(self, reader: ExprReader) -> None:
        self.reader = reader
        self.args: list[BodyArg] = []
        self.known: set[int] = set()

    def body(self, lines: list[Line]) -> Body:
        pairs = []
        stmts: list[Stmt] = []
        for line in lines:
            with line:
                if line.text.startswith("arg "):
                    self.args.append(self._arg(line.text[4:]))
                elif line.text.startswith("equal "):
                    a, b = split_once(line.text[6:], "; ")
                    pairs.append((self.reader.expr(a), self.reader.expr(b)))
                else:
                    stmts.append(self._stmt(line))
        return Body(tuple(self.args), tuple(stmts), tuple(pairs))

    def _arg(self, source: str) -> BodyArg:
        name, rest = split_once(source, ": ")
        mode, rest = split_once(rest, " ")
        type_, storage = split_once(rest, " from ")
        if mode not in _MODES or name in [a.name for a in self.args]:
            raise Unreadable(f"'{source}' is not a new argument")
        return BodyArg(name, mode, read_type(self.reader, type_), read_dtype(storage))

    # ---- statements -------------------------------------------------------------------------

    def _stmt(self, line: Line) -> Stmt:
        with line:
            if line.text.startswith("for "):
                return self._for(line)
            line.no_children()
            if line.text.startswith("store "):
                place, value = split_once(line.text[6:], " = ")
                return self._store(place, value)
            if line.text.startswith("accumulate "):
                name, value = split_once(line.text[11:], " += ")
                return Accumulate(self._arg_number(name), self._use(python_ast(value)))
            return self._let(line.text)

    def _let(self, source: str) -> Let:
        target, rest = split_once(source, " = ")
        code, _, type_ = rest.rpartition(" : ")
        op = self._op(code)
        self._check_ids(*operands(op))
        made = read_type(self.reader, type_)
        return Let(self._define(target), op, made)

    def _store(self, place: str, value: str) -> Store:
        match python_ast(place):
            case ast.Subscript(value=ast.Name(id=name), slice=index):
                axes = self.reader.sub_axes(index)
                return Store(self._arg_number(name), axes, self._use(python_ast(value)))
            case _:
                raise Unreadable(f"'{place}' is not a place to store to")

    def _for(self, line: Line) -> For:
        target, extent = split_once(line.text[4:], " < ")
        count = self.reader.expr(extent)
        var = self._define(target)
        carries = [c for c in line.children if c.text.startswith("carry ")]
        heads = []
        for c in carries:
            with c:
                heads.append(self._carry_head(c))
        rest = [c for c in line.children if c not in carries]
        body = tuple(self._stmt(c) for c in rest)
        made = []
        for c, (phi, init, after, out, type_) in zip(carries, heads, strict=True):
            with c:
                self._check_ids(after)
                made.append(Carry(phi, init, after, self._define(f"%{out}"), type_))
        return For(var, count, tuple(made), body)

    def _carry_head(self, line: Line) -> tuple[int, int, int, int, TileType]:
        head, _, type_ = line.text.rpartition(" : ")
        found = _CARRY.fullmatch(head)
        if found is None:
            raise Unreadable("a carry reads 'carry %1 = %0; next %2; out %3 : f32[4]'")
        phi, init, after, out = (int(g[1:]) for g in found.groups())
        self._check_ids(init)
        self._define(f"%{phi}")
        return phi, init, after, out, read_type(self.reader, type_)

    # ---- values -----------------------------------------------------------------------------

    def _define(self, source: str) -> int:
        new = value_id(python_ast(source))
        if new in self.known:
            raise Unreadable(f"%{new} is defined twice")
        self.known.add(new)
        return new

    def _use(self, tree: ast.expr) -> int:
        found = value_id(tree)
        self._check_ids(found)
        return found

    def _check_ids(self, *ids: int) -> None:
        for i in ids:
            if i not in self.known:
                raise Unreadable(f"%{i} is not defined before it is used")

    def _arg_number(self, name: str) -> int:
        for k, a in enumerate(self.args):
            if a.name == name:
                return k
        raise Unreadable(f"'{name}' is not an argument of the body")

    # ---- ops --------------------------------------------------------------------------------

    def _op(self, source: str) -> Op:
        # `and`, `or` and `not` are no names in Python, so the name is cut off first.
        name, _, rest = source.partition("(")
        tree = python_ast(f"op({rest}")
        if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
            raise Unreadable(f"'{source}' is not an operation")
        if name not in NAMES:
            raise Unreadable(f"'{name}' is not an operation")
        try:
            return self._named_op(name, tree.args, {k.arg or "": k.value for k in tree.keywords})
        except ValueError as error:
            raise Unreadable(f"'{source}' has the wrong arguments") from error

    def _named_op(self, name: str, args: list[ast.expr], kw: dict[str, ast.expr]) -> Op:
        """As the row of the op says; another number of arguments is a ValueError."""
        row = find_op(name, kw)
        if row is None:
            raise ValueError(name)
        given: dict[str, Any] = {} if row.tag is None else {row.tag: row.names[name]}
        rest = list(args)
        if any(row.fields_of_form(Form.axes)):  # `%0[0:4]` is two fields
            rest = [part for x in args for part in _parts(x)]
        for field, form in row.fields:
            if form in KEYWORDS:
                given[field] = (integer if form is Form.integer else integers)(kw[field])
            elif not rest:
                raise ValueError(name)
            elif form is Form.values:
                given[field], rest = tuple(value_id(x) for x in rest), []
            else:
                given[field] = self._field(form, rest.pop(0))
        if rest:
            raise ValueError(name)
        op: Op = row.node(**given)
        return op

    def _field(self, form: Form, tree: ast.expr) -> Any:
        match form, tree:
            case Form.value, _:
                return value_id(tree)
            case Form.axes, _:
                return self.reader.sub_axes(tree)
            case Form.arg, ast.Name(id=name):
                return self._arg_number(name)
            case Form.number, _:
                return number(tree)
            case Form.expr, _:
                return self.reader.node(tree)
            case Form.dtype, ast.Name(id=name):
                return read_dtype(name)
            case _:
                raise ValueError(form)


def _parts(tree: ast.expr) -> tuple[ast.expr, ...]:
    return (tree.value, tree.slice) if isinstance(tree, ast.Subscript) else (tree,)
