"""Prints what the producer warp does for a task whose custom body takes pages. The source of the
producer sees its operands as the body does, and the producer warp as `worker`."""

from __future__ import annotations

from ...ir.body_headers import Headers
from ...ir.cuda_body import Producer
from ...ir.program import PlacedCall, Program
from ...render.index_text import ExprWriter
from ..cpp.dialect import Dialect
from ..cpp.hand import HandWriter
from ..emitter import cpp_name


class FeedWriter(HandWriter):
    """Writes the function `feed_x_pages`, and a call of it where the producer warp has a tile."""

    def __init__(
        self,
        out: Dialect,
        expr: ExprWriter,
        program: Program,
        placed: PlacedCall,
        producer: Producer,
        headers: Headers,
    ) -> None:
        super().__init__(out, expr, program, placed, producer.source, headers)
        self.given = [k for k in range(len(self.call.reads))
                      if self.call.body.args[k].name in producer.operands]

    @property
    def name(self) -> str:
        return f"feed_{self.call.name}_pages"

    def function(self) -> None:
        lines = self.source.strip("\n").split("\n")
        self.includes([t.strip() for t in lines if t.lstrip().startswith("#include")])
        args = self.call.body.args
        params = [f"{self.view_type(k)} {cpp_name(args[k].name)}" for k in self.given]
        params += [f"int64_t {cpp_name(n)}" for n, _ in self.scalars]
        head = f"{self.out.inlined}void {self.name}(et::ProducerWarp& worker, {', '.join(params)})"
        with self.out.block(head):
            for name, size in self.constants().items():
                self.out.line(f"constexpr int {name} = {size};")
            self.out.extend([t for t in lines if not t.lstrip().startswith("#include")])
        self.out.line()

    def write(self) -> None:
        """What an earlier launch may have written is there once the tasks have begun."""
        self.out.line("worker.wait_for_tasks();")
        views = [self.as_view(k, self.args.read(k, storage=True)) for k in self.given]
        given = ["worker", *views, *(value for _, value in self.scalars)]
        self.out.line(f"{self.name}({', '.join(given)});")
