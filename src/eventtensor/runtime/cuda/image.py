"""The image of a built CUDA kernel: its code, its interface, and sizes as expressions over dims.

It has all that a launch needs. cuda_artifact.py writes one to a folder.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...codegen.cuda.maps import MappedTensor, PagedTensor
from ...ir.expr import Node
from ..interface import BufferOffset, Interface


@dataclass(frozen=True)
class Image:
    """`buffers` lie in the workspace of `workspace` bytes. `words` lie in memory of `word_bytes`
    bytes, which only ever holds tagged elements. `cells`, `arena`, `zeroed`, `aligned`, `maps`,
    `rank`, `threads` and `shared_bytes` are those of codegen.cuda.CudaSource."""

    interface: Interface
    architecture: str
    entry: str
    cells: Node
    arena: Node
    workspace: Node
    word_bytes: Node
    buffers: tuple[BufferOffset, ...]
    words: tuple[BufferOffset, ...]
    zeroed: tuple[str, ...]
    aligned: tuple[str, ...]
    maps: tuple[MappedTensor | PagedTensor, ...]
    rank: int
    threads: int
    shared_bytes: int
    debug: bool
    trace: bool
    cubin: bytes
    source: str
