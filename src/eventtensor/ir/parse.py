"""Reads a program back from its text (ir/text.py).

Bad text is error ET011, with the number of the line. Plans do not read back.
"""

from __future__ import annotations

import keyword
import re

from ..errors import BadText
from .cpp_body import CppBody
from .cuda_body import CudaBody
from .cuda_body_check import check_cuda_body
from .cuda_body_text import read_cpp_body, read_cuda_body
from .expr import Dim, Node
from .in_bounds import mark_in_bounds
from .indented_text import Line, read_lines, split_once
from .parse_expr import ExprReader, Unreadable
from .program import (
    Call,
    EventTensor,
    Fact,
    GridAxis,
    Item,
    Loop,
    Program,
)
from .tensor import Region, Role, Tensor
from .tile import Body
from .tile_parse import BodyReader, read_type

_DIM = re.compile(r"(\w+) in (\d+)\.\.(\d*)")
_ROLES = {r.value: r for r in Role}


def parse_program(source: str) -> Program:
    """The program with this text."""
    lines = read_lines(source)
    if not lines or not lines[0].text.startswith("program "):
        raise BadText("line 1: a program begins with 'program NAME'", place="<text>:1")
    with lines[0] as first:
        first.no_children()
        reader = _ProgramReader(_name(first.text[8:]))
    for line in lines[1:]:
        with line:
            reader.top(line)
    return reader.program()


def _name(source: str) -> str:
    if not source.isidentifier() or keyword.iskeyword(source):
        raise Unreadable(f"'{source}' is not a name")
    return source


class _ProgramReader:
    def __init__(self, name: str) -> None:
        self.name = name
        self.dims: dict[str, Dim] = {}
        self.tensors: dict[str, Tensor] = {}
        self.events: dict[str, EventTensor] = {}
        self.facts: list[Fact] = []
        self.items: list[Item] = []
        self.calls: set[str] = set()
        self.reader = ExprReader(self.dims)

    def program(self) -> Program:
        return Program(
            self.name, tuple(self.tensors.values()), tuple(self.events.values()),
            tuple(self.facts), tuple(self.items),
        )

    def top(self, line: Line) -> None:
        word, _, rest = line.text.partition(" ")
        if word in ("call", "loop"):
            self.items.append(self._item(line))
            return
        line.no_children()
        place = f"<text>:{line.number}"
        if word == "dim":
            self._dim(rest)
        elif word in _ROLES:
            self._tensor(_ROLES[word], rest, place)
        elif word == "event":
            self._event(rest, place)
        elif word == "fact":
            self._fact(rest, place)
        else:
            raise Unreadable(f"'{word}' begins no line of a program")

    # ---- declarations -----------------------------------------------------------------------

    def _dim(self, source: str) -> None:
        found = _DIM.fullmatch(source)
        if found is None:
            raise Unreadable("a dim reads 'dim n in 1..4096'")
        name = self._new(found[1])
        self.dims[name] = Dim(name, int(found[2]), int(found[3]) if found[3] else None)

    def _new(self, name: str) -> str:
        if name in self.dims or name in self.tensors or name in self.events:
            raise Unreadable(f"'{name}' is declared twice")
        return _name(name)

    def _tensor(self, role: Role, source: str, place: str) -> None:
        head, *facts = source.split("; ")
        name, type_ = split_once(head, " : ")
        made = read_type(self.reader, type_)
        bound: tuple[Node, Node] | None = None
        monotone = partial = False
        distinct: tuple[int, ...] = ()
        for fact in facts:
            word, _, rest = fact.partition(" ")
            if word == "bound":
                lo, hi = split_once(rest, " .. ")
                bound = (self.reader.expr(lo), self.reader.expr(hi))
            elif fact == "monotone":
                monotone = True
            elif fact == "partial" and role is Role.output:
                partial = True
            elif word == "distinct":
                distinct = _axis_numbers(rest, len(made.shape))
            else:
                raise Unreadable(f"'{fact}' is not a fact of a tensor")
        self._new(name)
        self.tensors[name] = Tensor(
            name, role, made.shape, made.dtype, bound, monotone, distinct, partial,
            place)

    def _event(self, source: str, place: str) -> None:
        head, *rest = source.split("; ")
        name, shape = split_once(head, "[")
        count: Node | None = None
        derived = False
        for part in rest:
            if part.startswith("count "):
                count = self.reader.expr(part[6:])
            elif part == "derived":
                derived = True
            else:
                raise Unreadable(f"'{part}' is no property of an event tensor")
        if not shape.endswith("]"):
            raise Unreadable(f"'{head}' is not an event tensor such as E[n]")
        self._new(name)
        self.events[name] = EventTensor(
            name, self.reader.exprs(shape[:-1]), count, derived, place)

    def _fact(self, source: str, place: str) -> None:
        cond, *over = source.split("; ")
        self.facts.append(Fact(tuple(self._axis(a) for a in over), self.reader.expr(cond), place))

    def _axis(self, source: str) -> GridAxis:
        var, extent = split_once(source, " < ")
        if var in self.dims:
            raise Unreadable(f"the coordinate '{var}' has the name of a dim")
        return GridAxis(_name(var), self.reader.expr(extent))

    # ---- calls ------------------------------------------------------------------------------

    def _item(self, line: Line) -> Item:
        with line:
            word, _, rest = line.text.partition(" ")
            if word == "call":
                return self._call(line, rest)
            if word != "loop":
                raise Unreadable(f"'{word}' begins no call or loop")
            axis = self._axis(rest)
            return Loop(axis.var, axis.extent, tuple(self._item(c) for c in line.children))

    def _call(self, line: Line, head: str) -> Call:
        names, *flags = head.split("; ")
        name, kind = split_once(names, " : ")
        unknown = [f for f in flags if f not in ("unordered", "pushed")]
        if unknown:
            raise Unreadable(f"'{unknown[0]}' is no property of a call")
        if name in self.calls:
            raise Unreadable(f"there are two calls '{name}'")
        self.calls.add(_name(name))
        parts = _CallParts(self)
        for child in line.children:
            with child:
                parts.add(child)
        if parts.body is None:
            raise Unreadable(f"call '{name}' has no body")
        reads, accumulates, writes = (
            tuple(mark_in_bounds(r, self.tensors[r.tensor], tuple(parts.grid)) for r in regions)
            for regions in (parts.reads, parts.accumulates, parts.writes)
        )
        place = f"<text>:{line.number}"
        if parts.cuda_body is not None:
            check_cuda_body(parts.cuda_body, parts.body.read_names, name, place)
        return Call(
            name, _name(kind), tuple(parts.grid), reads, accumulates, writes, parts.body,
            "unordered" in flags, _edges(parts.waits), _edges(parts.notifies),
            parts.cpp_body, parts.cuda_body, "pushed" in flags, place=place,
        )

    def region(self, source: str, of_event: bool) -> Region:
        found = self.reader.region(source)
        known = self.events.get(found.tensor) if of_event else self.tensors.get(found.tensor)
        if known is None:
            raise Unreadable(f"there is no {'event ' if of_event else ''}tensor '{found.tensor}'")
        if len(known.shape) != len(found.axes):
            raise Unreadable(f"'{source}' has {len(found.axes)} axes, not {len(known.shape)}")
        return found


class _CallParts:
    """The parts of a call, collected from the lines under it."""

    def __init__(self, owner: _ProgramReader) -> None:
        self.owner = owner
        self.grid: list[GridAxis] = []
        self.reads: list[Region] = []
        self.accumulates: list[Region] = []
        self.writes: list[Region] = []
        self.waits: list[Region] | None = None
        self.notifies: list[Region] | None = None
        self.body: Body | None = None
        self.cpp_body: CppBody | None = None
        self.cuda_body: CudaBody | None = None

    def add(self, line: Line) -> None:
        word, _, rest = line.text.partition(" ")
        if word == "body":
            self.body = BodyReader(self.owner.reader).body(line.children)
            return
        if line.text == "cpp body":
            self.cpp_body = read_cpp_body(line)
            return
        if line.text == "cuda body":
            self.cuda_body = read_cuda_body(line)
            return
        line.no_children()
        match word:
            case "grid":
                self.grid.append(self.owner._axis(rest))
            case "read":
                self.reads.append(self.owner.region(rest, of_event=False))
            case "accumulate":
                self.accumulates.append(self.owner.region(rest, of_event=False))
            case "write":
                self.writes.append(self.owner.region(rest, of_event=False))
            case "wait":
                self.waits = self._edge(self.waits, rest)
            case "notify":
                self.notifies = self._edge(self.notifies, rest)
            case _:
                raise Unreadable(f"'{word}' begins no line of a call")

    def _edge(self, old: list[Region] | None, source: str) -> list[Region]:
        if source == "none":
            return []
        return [*(old or []), self.owner.region(source, of_event=True)]


def _edges(found: list[Region] | None) -> tuple[Region, ...] | None:
    return None if found is None else tuple(found)


def _axis_numbers(source: str, rank: int) -> tuple[int, ...]:
    found = source.split(", ")
    if not all(a.isdecimal() and int(a) < rank for a in found):
        raise Unreadable(f"'{source}' is not a list of axes")
    return tuple(int(a) for a in found)
