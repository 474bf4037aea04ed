"""The statements of a body as text. What depends on how a worker runs is asked of a `ThreadText`:
render/cpp.py and render/cuda.py have one each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, assert_never

from ..ir.expr import Const, product
from ..ir.program import Program
from ..ir.tensor import Point as PointAxis
from ..ir.tensor import Rows, Slice, axis_exprs
from ..kernel_ir import statements as st
from ..kernel_ir.buffers import Form, Part, View
from ..kernel_ir.names import cpp_name
from ..kernel_ir.traversal import all_stmts
from .dtypes import STORAGE
from .index_text import paren
from .scalars import ScalarWriter


class ThreadText(Protocol):
    """How the threads of a worker run statements."""

    @property
    def rolled(self) -> str:
        """What stands before a loop that gains nothing from being unrolled."""

    @property
    def arena(self) -> str:
        """Further template arguments of what takes memory of the arena."""

    def elements(self, out: BodyPrinter, s: st.Elements) -> None: ...
    def barrier(self, s: st.Barrier) -> str: ...
    def in_tensor(self, pointer: str) -> str: ...


@dataclass
class BodyPrinter:
    threads: ThreadText
    scalars: ScalarWriter
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    leader: str = "et::is_leader()"  # the condition of the thread that Elect means

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def block(self, body: st.Block) -> None:
        """Names that a block binds end with it."""
        before = dict(self.scalars.names)
        for s in body:
            self.stmt(s)
        self.scalars.names.clear()
        self.scalars.names.update(before)

    def braces(self, head: str, body: st.Block) -> None:
        self.line(f"{head} {{".lstrip())
        self.depth += 1
        self.block(body)
        self.depth -= 1
        self.line("}")

    def stmt(self, s: st.Stmt) -> None:
        write = self.scalars
        match s:
            case st.LetIndex(name, expr):
                self.line(f"const int64_t {cpp_name(name)} = {write(expr)};")
                write.names[expr] = cpp_name(name)
            case st.Let(name, value, changes):
                kind = f"{'' if changes else 'const '}{STORAGE[value.dtype]}"
                self.line(f"{kind} {cpp_name(name)} = {write.value(value)};")
            case st.Assign(name, value):
                self.line(f"{cpp_name(name)} = {write.value(value)};")
            case st.Allocate(view):
                self.allocate(view)
            case st.Bind(view, reads):
                self.bind(view, reads)
            case st.Point(view):
                self.point(view)
            case st.Check(index, extent):
                self.line(f"et::index_checked(worker, {write(index)}, {write(extent)});")
            case st.Elements():
                self.threads.elements(self, s)
            case st.Store(view, index, value):
                self.line(f"{write.place(view, index)} = {write.value(value)};")
            case st.Accumulate(view, index, value, atomic):
                add = "et::accumulate_atomic" if atomic else "et::accumulate"
                self.line(f"{add}({write.place(view, index)}, {write.value(value)});")
            case st.Histogram(view, var, extent, index, weights):
                looks = ", ".join(
                    f"[&](int64_t {cpp_name(var)}) {{ return {write.value(x)}; }}"
                    for x in (index, *weights)
                )
                counts = f"{write(view.extents[1])}, {write(extent)}"
                self.line(f"et::histogram({view.name}, {counts}, {looks});")
            case st.For():
                self.loop(s)
            case st.If(condition, body):
                self.braces(f"if ({write.value(condition)})", body)
            case st.Elect(_, body):
                self.braces(f"if ({self.leader})", body)
            case st.Barrier():
                self.line(self.threads.barrier(s))
            case st.Waits(lines, _, _, names, _):
                for text in lines:
                    self.line(text)
                write.names.update({x.expr: cpp_name(x.name) for x in names})
            case st.ReleaseStages():
                self.line("worker.pipeline.task_end();")
            case _:
                assert_never(s)

    def loop(self, s: st.For) -> None:
        """Memory of the arena goes back to what was taken before the loop."""
        var, extent = cpp_name(s.var), self.scalars(s.extent)
        head = f"{self.threads.rolled}for (int64_t {var} = 0; {var} < {extent}; ++{var})"
        if not any(isinstance(x, st.Allocate | st.Waits) for x in all_stmts(s.body)):
            self.braces(head, s.body)
            return
        mark = f"m{var[1:]}"
        self.line(f"const et::Arena::Mark {mark} = worker.arena.mark();")
        self.line(f"{head} {{")
        self.depth += 1
        waits, rest = (s.body[:1], s.body[1:]) if _begins_with_waits(s) else ((), s.body)
        self.block(waits)
        self.line(f"worker.arena.rewind({mark});")
        self.block(rest)
        self.depth -= 1
        self.line("}")

    # ---- views ---------------------------------------------------------------------------------

    def allocate(self, view: View) -> None:
        element, size = STORAGE[view.buffer.dtype], self.scalars(product(view.extents))
        take = f"worker.arena.take<{element}{self.threads.arena}>({size})"
        self.line(f"{element}* const {view.name} = {take};")

    def bind(self, view: View, reads: bool) -> None:
        """A descriptor of a region, and where its words go if they carry flags."""
        region, tagged, name = view.region, view.form is Form.tagged, view.name
        self.line(f"// {name} = {region}{', as words that carry their flags' if tagged else ''}")
        storage = STORAGE[view.buffer.dtype]
        element = f"{'const ' if reads else ''}{f'et::Tagged<{storage}>' if tagged else storage}"
        extents = ", ".join(self.scalars(e) for e in view.extents)
        strides = ", ".join(self.scalars(s) for s in view.strides)
        self.line(
            f"const et::View<{element}, {len(view.extents)}> {name}{{"
            f"{self.threads.in_tensor(self._start(view))}, {{{extents}}}, {{{strides}}}}};"
        )
        if tagged:
            self.line(
                f"const et::TaggedStore<{storage}> {name}_words{{{name}.data, worker.epoch}};"
            )
        for k, stride in enumerate(view.strides):
            if not isinstance(stride, Const):
                self.scalars.names.setdefault(stride, f"{name}.stride[{k}]")

    def _start(self, view: View) -> str:
        """A pointer to the first element of a region."""
        assert view.region is not None
        terms = [f"args.{cpp_name(view.buffer.name)}"]
        for k, axis in enumerate(view.region.axes):
            first = Const(0) if isinstance(axis, Rows) else axis_exprs(axis)[0]
            if first == Const(0):
                continue
            assert isinstance(axis, PointAxis | Slice)
            stride = self.scalars.stride(view.buffer.shape, k)
            text = paren(self.scalars(first))
            terms.append(text if stride == "1" else f"{text} * {paren(stride)}")
        return " + ".join(terms)

    def point(self, view: View) -> None:
        """The pointer of a part."""
        part = view.origin
        assert isinstance(part, Part)
        terms = [self.scalars.data(part.base)]
        for k, start in enumerate(part.starts):
            table, stride = part.base.table(k), part.base.strides[k]
            text = self._clamped(part, k) if k in part.clamped else self.scalars(start)
            if table is not None and k in part.dropped:
                terms.append(f"{self.scalars.table(table.name, table.start)}[{text}]")
            elif table is None and start != Const(0) and stride != Const(0):
                far = f"{paren(text)} * {paren(self.scalars(stride))}"
                terms.append(text if stride == Const(1) else far)
        self.line(f"const auto {view.name} = {' + '.join(terms)};")

    def _clamped(self, part: Part, k: int) -> str:
        extent = part.base.extents[k]
        most = extent if k in part.dropped else extent + 1
        return self.scalars.inside(self.scalars(part.starts[k]), most, part.checked)


def printer(
    program: Program, debug: bool, tagged: frozenset[str], threads: ThreadText
) -> BodyPrinter:
    return BodyPrinter(threads, ScalarWriter(program, debug, tagged))


def _begins_with_waits(s: st.For) -> bool:
    return bool(s.body) and isinstance(s.body[0], st.Waits)
