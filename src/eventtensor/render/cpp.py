"""A worker that is one thread: loops are plain, and every thread leads."""

from __future__ import annotations

from dataclasses import dataclass

from ..kernel_ir import statements as st
from ..kernel_ir.names import cpp_name
from .body_printer import BodyPrinter


@dataclass(frozen=True, slots=True)
class OneThread:
    rolled: str = ""
    arena: str = ""

    def elements(self, out: BodyPrinter, s: st.Elements) -> None:
        for k, a in enumerate(s.axes):
            if s.independent and k == len(s.axes) - 1:
                out.line("ET_INDEPENDENT")
            var = cpp_name(a.var)
            out.line(f"for (int64_t {var} = 0; {var} < {out.scalars(a.extent)}; ++{var})")
            out.depth += 1
        if len(s.body) > 1:
            out.braces("", s.body)
        else:
            out.block(s.body)
        out.depth -= len(s.axes)

    def barrier(self, s: st.Barrier) -> str:
        raise AssertionError("a worker of one thread has nobody to meet")

    def in_tensor(self, pointer: str) -> str:
        return pointer
