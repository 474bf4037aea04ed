"""What the CUDA back end writes for each op. The writers of C++ emit CUDA too: loops over elements
are shared out by BlockDialect, and device functions of the same name work with all threads.
"""

from __future__ import annotations

from typing import Any

from ...ir import tile as t
from ...ir.handler_table import HandlerTable
from ...ir.ops import OP_SPECS
from ..cpp.lowering import CPP, Lowering

CUDA: HandlerTable[type[Any], Lowering] = HandlerTable(
    "the CUDA back end (codegen/cuda/lowering.py)", OP_SPECS
)

# Views and lazy values: text that has no threads in it.
CUDA.share(CPP, t.Arg, t.Literal, t.Index, t.Iota, t.Unary, t.Binary, t.Where, t.Cast, t.Broadcast,
           t.Transpose, t.Reshape, t.Gather)
# What may take a page of a stream (codegen/cuda/body.py).
CUDA.share(CPP, t.SliceOf, t.MatMul)
# Several threads fold an element together (device/cuda/ops/reduce.cuh).
CUDA.share(CPP, t.Reduce, t.ArgMax)
# Loops in which a thread has a line of the operand, or for a sort an element of it.
CUDA.share(CPP, t.TopK, t.Scan, t.Sort)
# Copies into memory of the arena.
CUDA.share(CPP, t.Concat, t.Update)
# A function of device/cuda/ops/histogram.cuh for all threads, between two barriers.
CUDA.share(CPP, t.Histogram)

CUDA.require_all()
