"""The whole kernel as CUDA text. Tasks, grids, groups and the worker's program are those of the C++
back end, written for blocks; what is here is the frame around them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.expr import Const, Node, add, maximum, product
from ...ir.plan import Plan
from ...ir.program import PlacedCall
from ...target import H200, CudaTarget
from ..cpp.kernel import Flavour, KernelWriter, coordinate_rank
from . import abi
from .emitter import BlockDialect
from .room import room

THREADS = 256
RESERVED = 2048  # bytes of shared memory for what is declared in the kernel
KERNEL = "et_kernel"


@dataclass(frozen=True)
class CudaSource:
    """`cells` (counters) and `arena` (bytes for the temporaries of one worker, where shared memory
    does not hold them) are over dims; `zeroed` tensors start from 0 at every launch. A block has
    `threads`, and `shared_bytes` of dynamic shared memory."""

    text: str
    cells: Node
    arena: Node
    zeroed: tuple[str, ...]
    rank: int
    threads: int
    shared_bytes: int


def generate(
    plan: Plan, target: CudaTarget = H200, debug: bool = False, trace: bool = False
) -> CudaSource:
    writer = BlockWriter(plan, target, Flavour(debug, trace))
    text = writer.text()
    return CudaSource(
        text, writer.cell_count(), writer.arena, tuple(t.name for t in writer.zeroed()),
        coordinate_rank(plan), THREADS, writer.near_bytes,
    )


class BlockWriter(KernelWriter):
    def __init__(self, plan: Plan, target: CudaTarget, flavour: Flavour) -> None:
        self.target = target
        self.near_bytes = target.shared_bytes - RESERVED
        self.block_out = BlockDialect()
        super().__init__(plan, flavour, self.block_out)
        self.arena: Node = Const(0)

    def includes(self) -> None:
        o = self.out
        o.line(f"#define ET_DEBUG {int(self.flavour.debug)}")
        o.line(f"#define ET_TRACE {int(self.flavour.trace)}")
        o.line(f"#define ET_THREADS {THREADS}")
        o.line('#include "cuda/std.cuh"')
        o.line()
        o.comment("---- shared with the host (codegen/cuda/abi.py) " + "-" * 43)
        o.extend(abi.structs(
            coordinate_rank(self.plan), len(self.program.dims), len(self.program.tensors)
        ))
        o.line()
        o.line('#include "claim.h"')

    def cell_count(self) -> Node:
        total: Node = Const(0)
        for e in self.plan.events:
            total = add(total, product(self.sync.event_shape(e)))
        for _, size in self.extra_cells():
            total = add(total, size)
        return total

    def body(self, p: PlacedCall) -> None:
        self.block_out.taken.clear()
        super().body(p)
        self.arena = maximum(self.arena, room(self.program, p, self.block_out.taken))

    def entry(self) -> None:
        o = self.out
        self.bind()
        o.line("}  // namespace")
        o.line()
        with o.block(
            f'extern "C" __global__ void __launch_bounds__({THREADS}) {KERNEL}('
            "const __grid_constant__ Shared shared, const __grid_constant__ Launch launch)"
        ):
            o.line("__shared__ int64_t board[2];")
            o.line("extern __shared__ __align__(128) char near[];")
            o.line(f"et::Worker worker(shared, board, near, {self.near_bytes});")
            o.line("Args args = bind(launch);")
            o.line("const int64_t cells = lay_out(args);")
            o.line("et::launch_begin(worker);")
            o.line("run(worker, args);")
            o.line("et::launch_end(worker, cells);")
