"""Hand-tuned C++ bodies: a function that sees its arguments as views of the stored elements and the
coordinates and dims by name. Gathered and padded regions are dense copies there.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir.program import HandTuned, PlacedCall, Program
from ...ir.tile import ArgMode
from ..emitter import cpp_name
from .dialect import Dialect
from .expr import ExprWriter
from .frame import BodyFrame
from .value import STORAGE, Value, View, of_view


class HandWriter(BodyFrame):
    """Writes the function, and a body that calls it."""

    def __init__(
        self, out: Dialect, expr: ExprWriter, program: Program, placed: PlacedCall,
        tuned: HandTuned,
    ) -> None:
        super().__init__(out, expr, program, placed)
        self.tuned = tuned
        taken = {a.name for a in self.call.body.args}
        dims = [d.name for d in program.dims if d.name not in (*taken, *placed.vars)]
        self.scalars = [(n, cpp_name(n)) for n in placed.vars if n not in taken]
        self.scalars += [(n, f"args.{cpp_name(n)}") for n in dims]

    def function(self) -> None:
        out, params = self.out, []
        for a in self.call.body.args:
            const = "const " if a.mode == ArgMode.read else ""
            view = f"et::View<{const}{STORAGE[a.storage]}, {len(a.type.shape)}>"
            params.append(f"{view} {cpp_name(a.name)}")
        params += [f"int64_t {cpp_name(n)}" for n, _ in self.scalars]
        hand = f"{out.function}void hand_{self.call.name}"
        with out.block(f"{hand}(et::Worker& worker, {', '.join(params)})"):
            out.line("(void)worker;")
            for n, _ in self.scalars:
                out.line(f"(void){cpp_name(n)};")
            for text in self.tuned.source.strip("\n").split("\n"):
                out.line(text)
        out.line()

    def write(self) -> None:
        passed: list[str] = []
        back: list[tuple[View, Value]] = []
        for k, a in enumerate(self.call.body.args):
            if a.mode == ArgMode.read:
                value = self.args.read(k, storage=True)
            elif self.args.edges.has_flags(self.call.regions[k].tensor):
                self.targets[k] = self.args.write(k, self.uses, plain=True)
                value = of_view(self.targets[k].view, self.targets[k].type)
            else:
                home = self.args.place(k)
                value = of_view(home, self.args.type(k))
            dense = self.dense(k, value)
            if a.mode != ArgMode.read and dense is not value:
                back.append((home, dense))
            passed.append(self.as_view(k, dense))
        out = ", ".join(("worker", *passed, *(value for _, value in self.scalars)))
        self.out.barrier()
        self.out.line(f"hand_{self.call.name}({out});")
        self.out.barrier()
        for home, dense in back:
            self.fill(home, dense)
        self.args.finish(self.targets)

    def dense(self, k: int, value: Value) -> Value:
        """Rows that lie apart are copied together."""
        view, storage = value.view, self.call.body.args[k].storage
        assert view is not None
        if not view.tables:
            return value
        copy = self.temp(f"{self.args.name(k)}_tile", value.type, STORAGE[storage])
        copy = replace(copy, storage=storage)
        self.fill(copy, value)
        return of_view(copy, value.type)

    def as_view(self, k: int, value: Value) -> str:
        """The argument as an et::View of what is stored."""
        view, arg = value.view, self.call.body.args[k]
        assert view is not None
        const = "const " if arg.mode == ArgMode.read else ""
        shape = ", ".join(self.extent(s) for s in value.type.shape)
        return (
            f"et::View<{const}{STORAGE[arg.storage]}, {len(value.type.shape)}>"
            f"{{{view.data}, {{{shape}}}, {{{', '.join(view.strides)}}}}}"
        )
