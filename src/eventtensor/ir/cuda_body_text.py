"""Prints and parses the custom bodies of a call: one attribute a line, source behind `|`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile

from ..errors import BadCall, BadCudaBody
from .cpp_body import CppBody
from .cuda_body import CudaBody, Producer, Scratch
from .indented_text import Line
from .parse_expr import Unreadable
from .tile_parse import read_dtype
from .tile_text import INDENT

_SCRATCH = re.compile(r"(\w+) : (\w+)\[(.+)\]")


def source_lines(source: str) -> Iterator[str]:
    yield from (f"{INDENT}| {line}" for line in source.split("\n"))


def cpp_body_lines(body: CppBody) -> Iterator[str]:
    yield from (f"{INDENT}header {path}" for path in body.headers)
    yield from source_lines(body.source)


def cuda_body_lines(body: CudaBody) -> Iterator[str]:
    yield from (f"header {path}" for path in body.headers)
    if body.waits_inside:
        yield f"waits_inside {', '.join(body.waits_inside)}"
    if body.prefetches_next_tile:
        yield "prefetches_next_tile"
    if body.persistent_bytes_per_warp:
        yield f"persistent_bytes_per_warp {body.persistent_bytes_per_warp}"
    yield from (f"scratch {s.name} : {s.dtype}[{s.count}]" for s in body.scratch)
    if body.producer is not None:
        yield f"producer {', '.join(body.producer.operands)}".rstrip()
        yield from source_lines(body.producer.source)
    yield "source"
    yield from source_lines(body.source)


def read_source(line: Line) -> str:
    return _read_source(line.children)


def _read_source(lines: list[Line]) -> str:
    kept = []
    for child in lines:
        with child:
            if not child.text.startswith("|"):
                raise Unreadable("a line of hand-written code begins with '|'")
            child.no_children()
            kept.append(child.text[2:])
    return "\n".join(kept)


def read_cpp_body(line: Line) -> CppBody:
    headers = list(takewhile(lambda child: child.text.startswith("header "), line.children))
    try:
        return CppBody(
            _read_source(line.children[len(headers) :]), tuple(_rest(child) for child in headers)
        )
    except BadCall as error:
        raise Unreadable(error.message) from error


def _rest(line: Line) -> str:
    return line.text.partition(" ")[2]


def read_cuda_body(line: Line) -> CudaBody:
    try:
        return _read(line)
    except BadCudaBody as error:
        raise Unreadable(error.message) from error


def _read(line: Line) -> CudaBody:
    source: str | None = None
    waits: tuple[str, ...] = ()
    prefetches, persistent, producer = False, 0, None
    scratch: list[Scratch] = []
    headers: list[str] = []
    for child in line.children:
        with child:
            word, _, rest = child.text.partition(" ")
            match word:
                case "header":
                    headers.append(rest)
                case "waits_inside":
                    waits = _names(rest)
                case "prefetches_next_tile" if not rest:
                    prefetches = True
                case "persistent_bytes_per_warp" if rest.isdecimal():
                    persistent = int(rest)
                case "scratch":
                    scratch.append(_scratch(rest))
                case "producer":
                    producer = Producer(read_source(child), _names(rest))
                case "source" if not rest:
                    source = read_source(child)
                case _:
                    raise Unreadable(f"'{child.text}' declares nothing of a CUDA body")
    if source is None:
        raise Unreadable("a CUDA body has a source")
    return CudaBody(source, waits, prefetches, persistent, tuple(scratch), producer, tuple(headers))


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(", ")) if text else ()


def _scratch(text: str) -> Scratch:
    found = _SCRATCH.fullmatch(text)
    if found is None:
        raise Unreadable("scratch reads 'scratch name : f32[2*x_1 + 8]'")
    return Scratch(found[1], read_dtype(found[2]), found[3])
