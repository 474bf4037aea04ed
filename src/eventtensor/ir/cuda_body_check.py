"""Compares what the source of a custom CUDA body calls with what the body declares.

A difference is error BadCudaBody. The check may refuse a body, but cannot change a kernel. Headers
that a source includes are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ..errors import BadCudaBody
from .cuda_body import CudaBody, Producer

# The device function that each attribute declares.
DEVICE_FUNCTIONS = {
    "waits_inside": "arrive",
    "prefetches_next_tile": "et::next_tile",
    "persistent_bytes_per_warp": "et::persistent_smem",
    "scratch": "worker.arena.take",
}
STREAMED = "streamed"  # true in kernels whose producer warp loads the pages of a body

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)

Difference = tuple[str, str]  # a cause and a hint


def code_of(source: str) -> str:
    """The source without comments and string literals."""
    return _COMMENT.sub(" ", source)


def names_in(source: str) -> set[str]:
    return set(re.findall(r"\w+", code_of(source)))


def calls(source: str, attribute: str) -> bool:
    """True if the source calls the device function of an attribute."""
    function = re.escape(DEVICE_FUNCTIONS[attribute])
    return re.search(rf"(?<![\w:.]){function}\b", code_of(source)) is not None


def check_cuda_body(body: CudaBody, reads: Iterable[str], call: str, place: str) -> None:
    """`reads` are the names of the arguments that the task reads."""
    for cause, hint in _differences(body, tuple(reads)):
        raise BadCudaBody(f"the CUDA body of call '{call}' {cause}", place=place, hint=hint)


def _differences(body: CudaBody, reads: tuple[str, ...]) -> Iterator[Difference]:
    yield from _unknown("waits_inside", body.waits_inside, reads)
    for attribute in ("waits_inside", "prefetches_next_tile", "persistent_bytes_per_warp"):
        yield from _call(body, attribute)
    yield from _scratch(body)
    if body.producer is not None:
        yield from _producer(body.source, body.producer, reads)


def _unknown(attribute: str, names: Iterable[str], reads: tuple[str, ...]) -> Iterator[Difference]:
    for name in names:
        if name not in reads:
            yield (f"declares {attribute} with '{name}', which the task does not read",
                   f"the task reads {', '.join(reads) or 'nothing'}")


def _call(body: CudaBody, attribute: str) -> Iterator[Difference]:
    function, declared = DEVICE_FUNCTIONS[attribute], bool(getattr(body, attribute))
    found = calls(body.source, attribute)
    if found and not declared:
        yield (f"calls {function} and does not declare {attribute}",
               f"give et.CudaBody(.., {attribute}=..)")
    if declared and not found:
        yield (f"declares {attribute} and does not call {function}",
               f"call {function} in the source itself, or leave {attribute} away")


def _scratch(body: CudaBody) -> Iterator[Difference]:
    function = DEVICE_FUNCTIONS["scratch"]
    if calls(body.source, "scratch"):
        yield (f"calls {function} and does not declare the scratch",
               "give et.CudaBody(.., scratch=(et.Scratch(name, dtype, count),))")
    for s in body.scratch:
        if s.name not in names_in(body.source):
            yield (f"declares scratch '{s.name}' and does not name it",
                   f"use '{s.name}' in the source, or leave it away")


def _producer(source: str, producer: Producer, reads: tuple[str, ...]) -> Iterator[Difference]:
    yield from _unknown("a producer", producer.operands, reads)
    named = names_in(producer.source)
    for name in reads:
        if (name in named) != (name in producer.operands):
            what = "names" if name in named else "does not name"
            yield (f"has a producer that {what} '{name}', against its operands",
                   "operands= lists the read arguments that the source of the producer names")
    if STREAMED not in names_in(source):
        yield (f"has a producer and does not ask whether it is {STREAMED}",
               f"if constexpr ({STREAMED}) takes the pages; otherwise the body reads its arguments")
