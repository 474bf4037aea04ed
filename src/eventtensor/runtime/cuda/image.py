"""A built CUDA kernel with all that a launch needs to know of it: code, interface, and the sizes of
what it uses, as expressions over dims. `cuda_artifact.py` writes one to a folder."""

from __future__ import annotations

from dataclasses import dataclass

from ...codegen.cuda.maps import MappedTensor, PagedTensor
from ...ir.expr import Node
from ..interface import Interface, Placed


@dataclass(frozen=True)
class Image:
    """`buffers` lie in the workspace (`workspace` bytes), `words` in memory that only ever holds
    tagged words (`word_bytes`). `cells`, `arena`, `zeroed`, `aligned`, `maps`, `rank`, `threads`
    and `shared_bytes` are those of codegen.cuda.CudaSource."""

    interface: Interface
    architecture: str
    entry: str
    cells: Node
    arena: Node
    workspace: Node
    word_bytes: Node
    buffers: tuple[Placed, ...]
    words: tuple[Placed, ...]
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
