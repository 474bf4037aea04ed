"""Prints custom bodies: a function that sees its arguments as views of the stored elements and the
coordinates and dims by name. A gathered region that is only read is an et::Gathered; gathered ones
that are written, and padded ones, are dense copies there. `streamed` says whether the producer warp
loads the operands of the body's producer.

A body that declares `waits_inside` begins before the words of these arguments have come, or before
the last event that its task waits for. All threads call `arrive()` once, which is false if the
launch is given up, and meet in it; the body returns whether the launch goes on. Which extents and
coordinates the source names is looked up only to print them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import chain
from math import prod

from ...errors import UnboundedTile
from ...ir.availability import DataAvailability
from ...ir.body_headers import Headers, include_lines
from ...ir.cuda_body import Scratch
from ...ir.expr import Const
from ...ir.plan import Wait
from ...ir.program import PlacedCall, Program
from ...ir.tensor import Rows, region_exprs
from ...ir.tile import ArgMode
from ...render.index_text import ExprWriter
from ..emitter import cpp_name
from .dialect import Dialect
from .frame import BodyFrame
from .sync import SyncWriter
from .value import STORAGE, Value, View, of_view


class HandWriter(BodyFrame):
    """Writes the function, and a body that calls it."""

    def __init__(
        self,
        out: Dialect,
        expr: ExprWriter,
        program: Program,
        placed: PlacedCall,
        source: str,
        headers: Headers,
        streamed: bool = False,
        waits_inside: tuple[str, ...] = (),
        scratch: tuple[Scratch, ...] = (),
    ) -> None:
        super().__init__(out, expr, program, placed)
        self.source, self.streamed, self.scratch = source, streamed, scratch
        self.headers = include_lines(headers)
        self.passed: dict[int, str] = {}  # arguments that stand in the body already
        taken = {a.name for a in self.call.body.args}
        named = set(re.findall(r"\w+", source))
        self.inside = {k for k in range(len(self.call.reads))
                       if self.call.body.args[k].name in waits_inside}
        self.arrival = ""  # what it does, if it does anything but meet,
        self.last: Callable[[], None] | None = None  # or what writes the wait that it does
        dims = [d.name for d in program.dims if d.name not in (*taken, *placed.vars)]
        scalars = [(n, cpp_name(n)) for n in placed.vars if n not in taken]
        scalars += [(n, f"args.{cpp_name(n)}") for n in dims]
        self.scalars = [(n, value) for n, value in scalars if cpp_name(n) in named]

    def function(self) -> None:
        out, body = self.out, self.call.body
        lines = self.source.strip("\n").split("\n")
        self.includes([t.strip() for t in lines if t.lstrip().startswith("#include")])
        params = [f"{self.view_type(k)} {cpp_name(a.name)}" for k, a in enumerate(body.args)]
        params += [f"int64_t {cpp_name(n)}" for n, _ in self.scalars]
        if self.arrives:
            params.append("const Arrive& arrive")
            out.line("template <class Arrive>")
        hand = f"{out.function}{'bool' if self.arrives else 'void'} hand_{self.call.name}"
        with out.block(f"{hand}(et::Worker& worker, {', '.join(params)})"):
            out.line("(void)worker;")
            for name, size in self.constants().items():
                out.line(f"constexpr int {name} = {size};")
            if re.search(r"\bstreamed\b", self.source):
                out.line(f"constexpr bool streamed = {str(self.streamed).lower()};")
            for s in self.scratch:
                out.take(s.name, STORAGE[s.dtype], str(s.count), Const(self._number(str(s.count))))
            for text in lines:
                if not text.lstrip().startswith("#include"):
                    out.line(text)
        out.line()

    @property
    def arrives(self) -> bool:
        return bool(self.inside)

    def includes(self, wanted: list[str]) -> None:
        """Headers have namespaces of their own: they stand outside that of the kernel."""
        wanted = [*self.headers, *wanted]
        if any(self.gathered(k) for k in range(len(self.call.body.args))):
            wanted = ['#include "gathered.h"', *wanted]
        if wanted:
            for text in ("}  // namespace", *dict.fromkeys(wanted), "namespace {", ""):
                self.out.line(text)

    def constants(self) -> dict[str, int]:
        """Extents that are numbers and that the body names: q_1 is that of axis 1 of q."""
        text = " ".join([self.source, *(str(s.count) for s in self.scratch)])
        words = set(re.findall(r"\w+", text)) - {n for n, _ in self.scalars}
        sizes = {
            f"{a.name}_{axis}": n.value
            for k, a in enumerate(self.call.body.args)
            for axis, n in enumerate(self.args.type(k).shape) if isinstance(n, Const)
        }
        return {name: n for name, n in sizes.items() if name in words}

    def _number(self, text: str) -> int:
        """The value of a sum of products of numbers and constants."""
        known = self.constants()
        terms = [term.split("*") for term in text.replace(" ", "").split("+")]
        for x in chain(*terms):
            if not x.isdigit() and x not in known:
                raise UnboundedTile(
                    f"the CUDA body of '{self.call.name}' has scratch of {text} elements, and "
                    f"{x!r} is no number",
                    place=self.call.place,
                    hint="use numbers, and extents that are numbers: x_1 is that of axis 1 of x",
                )
        return sum(prod(known[x] if x in known else int(x) for x in term) for term in terms)

    def gathered(self, k: int) -> bool:
        """True if the rows of argument k are seen where they lie."""
        region = self.call.regions[k]
        read = self.call.body.args[k].mode == ArgMode.read and not self.args.overwritten(k)
        return read and region.pad is None and any(isinstance(x, Rows) for x in region.axes)

    def by_value(self, k: int) -> bool:
        """True for one element that is read: it is loaded before the threads meet."""
        arg = self.call.body.args[k]
        return arg.mode == ArgMode.read and not arg.type.shape

    def small_args(self) -> list[int]:
        """All that are read, unless the body loads them itself; elements go by value at once."""
        if self.arrives:
            return []
        return [k for k in range(len(self.call.reads)) if not self.by_value(k)]

    def early(self, settled: DataAvailability) -> None:
        """Elements first: tables, which come next, end with a meeting of all threads."""
        self.learn(settled)
        for k in range(len(self.call.reads)):
            if (
                self.by_value(k)
                and k not in (*self.args.staged, *self.passed)
                and not self.args.overwritten(k)
                and settled.is_region_known(self.call.regions[k])
            ):
                self.passed[k] = self.as_view(k, self.args.read(k, storage=True))
        super().early(settled)

    def prepare(
        self,
        settled: DataAvailability,
        waits: tuple[Wait, ...],
        sync: SyncWriter,
        checks: Callable[[], None],
    ) -> None:
        if not self._waits_inside(settled, waits):
            super().prepare(settled, waits, sync, checks)
            return
        self.early(self.first_waits(settled, waits, sync))
        self.last = partial(sync.waits, waits[-1:])

    def _waits_inside(self, settled: DataAvailability, waits: tuple[Wait, ...]) -> bool:
        """True if the body can do the last wait: it declares all arguments that the wait guards,
        all places are known before it, nothing else comes behind it, and what the frame itself
        loads for the body (elements, copies) does not need it."""
        if not self.arrives or not waits or self.args.staged or self.expr.debug:
            return False
        guarded = {k for k, mode in waits[-1].guarded_args(self.call) if mode != ArgMode.write}
        if not guarded <= self.inside:
            return False
        for w in waits[:-1]:
            settled = settled.with_wait(w)
        regions = self.call.regions
        return settled.are_loads_known(*(e for r in regions for e in region_exprs(r))) and all(
            settled.is_region_known(regions[k]) for k in range(len(regions)) if self._loaded(k)
        )

    def _loaded(self, k: int) -> bool:
        """True for an argument of which more than its place is found ahead of the text."""
        region = self.call.regions[k]
        apart = any(isinstance(x, Rows) for x in region.axes) and not self.gathered(k)
        return self.by_value(k) or self.args.overwritten(k) or region.pad is not None or apart

    def words(self) -> None:
        if self.arrives and self.inside.issuperset(self.args.words_come()):
            self.arrival = self.args.arrival()
        if not self.arrival:
            super().words()

    def view_type(self, k: int) -> str:
        arg = self.call.body.args[k]
        if self.by_value(k):
            return STORAGE[arg.storage]
        const = "const " if arg.mode == ArgMode.read else ""
        kind = "et::Gathered" if self.gathered(k) else "et::View"
        return f"{kind}<{const}{STORAGE[arg.storage]}, {len(arg.type.shape)}>"

    def write(self) -> None:
        back: list[tuple[View, Value]] = []
        for k in range(len(self.call.body.args)):
            if k in self.passed:
                continue
            if self.call.body.args[k].mode == ArgMode.read:
                value = self.args.read(k, storage=True)
            elif self.args.has_flags(k):
                self.targets[k] = self.args.write(k, self.uses, plain=True)
                value = of_view(self.targets[k].view, self.targets[k].type)
            else:
                home = self.args.place(k)
                value = of_view(home, self.args.type(k))
            dense = value if self.gathered(k) else self.dense(k, value)
            if self.call.body.args[k].mode != ArgMode.read and dense is not value:
                back.append((home, dense))
            self.passed[k] = self.as_view(k, dense)
        views = (self.passed[k] for k in sorted(self.passed))
        given = ["worker", *views, *(value for _, value in self.scalars)]
        if self.arrives:
            self._begin(given)
        else:
            self.out.barrier()
            self.out.line(f"hand_{self.call.name}({', '.join(given)});")
        self.out.barrier()
        for home, dense in back:
            self.fill(home, dense)
        self.args.finish(self.targets)

    def _begin(self, given: list[str]) -> None:
        """A body that waits for words by itself."""
        with self.out.block("const auto arrive = [&]", tail="};"):
            if self.last is not None:
                self.last()
            elif self.arrival:
                self.out.line(f"if (!{self.arrival}) return false;")
            else:
                self.out.barrier()
            if self._waits:
                self.out.line("et::task_ready(worker);")
            self.out.line("return true;")
        hand = f"hand_{self.call.name}({', '.join([*given, 'arrive'])})"
        self.out.line(f"if (!{hand}) return false;" if self._waits else f"{hand};")

    @property
    def _waits(self) -> bool:
        """True if the body waits."""
        return bool(self.arrival) or self.last is not None

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
        """The argument as a view of what is stored."""
        view = value.view
        assert view is not None
        if self.by_value(k):
            name = f"{self.args.name(k)}_value"
            self.out.line(f"const {self.view_type(k)} {name} = {view.place(())};")
            return name
        parts = [[self.extent(s) for s in value.type.shape], list(view.strides)]
        if self.gathered(k):
            parts.append([table or "nullptr" for table in view.tables])
        listed = ", ".join(f"{{{', '.join(part)}}}" for part in parts)
        return f"{self.view_type(k)}{{{view.data}, {listed}}}"
