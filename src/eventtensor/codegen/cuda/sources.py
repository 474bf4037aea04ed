"""Where a product takes its pages from: the pipeline, or the memory where its operand lies."""

from __future__ import annotations

from ...ir.layout import layout_of, panel_stride, row_stride
from ...ir.plan import Stream, StreamKind
from ...ir.program import Call, Program
from ...render.index_text import ExprWriter, paren
from ..emitter import cpp_name
from .batched_gemv import Run


def source_of(
    call: Call, program: Program, expr: ExprWriter, stream: Stream, span: int, run: Run | None
) -> str:
    """Packed panels, in spans of so many bytes, or plain rows; of all products of a run, if these
    are joined. In place a run is always that."""
    if stream.is_streamed and stream.kind is not StreamKind.packed:
        return "et::PipelineRows(worker)"
    if stream.is_streamed:
        joined = run is not None and run.joined > 1
        return f"et::PipelinePanels<{span}, {stream.bundle}{', true' * joined}>(worker)"

    def place(arg: int) -> str:
        region = call.regions[arg]
        layout = layout_of(region, program.tensor(region.tensor))
        assert layout is not None
        start = paren(expr(layout.offset))
        return f"reinterpret_cast<const char*>(args.{cpp_name(region.tensor)} + {start})"

    if run is not None:
        places = ", ".join(map(place, run.args))
        how = f"{span}, {stream.bundle}, {len(run.args)}"
        return f"et::GlobalJoinedPanels<{how}>{{{{{places}}}}}"
    region = call.regions[stream.arg]
    tensor = program.tensor(region.tensor)
    if stream.kind is StreamKind.packed:
        stride = expr(panel_stride(tensor))
        return (
            f"et::GlobalPanels<{span}, {stream.bundle}>"
            f"{{{place(stream.arg)}, {stride}, {stream.stage_bytes}}}"
        )
    stride = expr(row_stride(region, tensor))
    return f"et::GlobalRows{{{place(stream.arg)}, {stride}, {stream.k_bytes_per_stage}}}"
