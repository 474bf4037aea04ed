"""A worker that is a block of threads, who share out the elements of a loop."""

from __future__ import annotations

from dataclasses import dataclass

from ..kernel_ir import statements as st
from ..kernel_ir.distributions import HalfWarp, Linear
from ..kernel_ir.names import cpp_name
from ..kernel_ir.scopes import Scope
from .body_printer import BodyPrinter
from .dtypes import STORAGE


@dataclass(frozen=True, slots=True)
class ThreadsOfBlock:
    """`arena`: whether temporaries may lie in device memory, as a template argument."""

    arena: str
    rolled: str = "ET_ROLLED "

    def barrier(self, s: st.Barrier) -> str:
        assert s.scope is Scope.role and s.id == 0
        return "et::sync();"

    def in_tensor(self, pointer: str) -> str:
        return f"et::global({pointer})"

    def elements(self, out: BodyPrinter, s: st.Elements) -> None:
        names = [cpp_name(a.var) for a in s.spread]
        sizes = ", ".join(out.scalars(a.extent) for a in s.spread)
        match s.distribution:
            case HalfWarp():
                self._half_warps(out, s, names, sizes)
            case Linear() if not names:
                self._inside(out, s, "if (et::is_leader())", [])
            case Linear(each) if each > 0:
                self._few(out, s, names[0], each)
            case Linear() if len(names) == 1:
                (i,) = names
                head = (
                    f"{self.rolled}for (int64_t {i} = et::thread_rank(); {i} < {sizes}; "
                    f"{i} += et::num_threads())"
                )
                self._inside(out, s, head, [])
            case Linear():
                shown = ", ".join(f"{n} = t1[{k}]" for k, n in enumerate(names))
                head = f"for (et::Each<{len(names)}> t1({sizes}); t1.more(); t1.next())"
                self._inside(out, s, head, [f"const int64_t {shown};"])

    def _half_warps(self, out: BodyPrinter, s: st.Elements, names: list[str], sizes: str) -> None:
        """Whole warps fold: what lies beyond the last element is another's once more."""
        if not names:
            self._inside(out, s, "if (et::thread_rank() < 32)", [])
            return
        head = f"for (et::Each<{len(names)}, 16> t1({sizes}); t1.more_in_warp(); t1.next())"
        shown = ", ".join(f"{n} = t1.held({k})" for k, n in enumerate(names))
        before, out.leader = out.leader, "t1.is_leader()"
        self._inside(out, s, head, [f"const int64_t {shown};"])
        out.leader = before

    def _few(self, out: BodyPrinter, s: st.Elements, name: str, each: int) -> None:
        """The few elements of a thread, unrolled; the first values of all of them come before."""
        index = f"const int64_t {name} = et::thread_rank() + n * et::num_threads();"
        for x in s.first:
            batch, value = cpp_name(x.name), out.scalars.value(x.value)
            given = f"[&](int n) {{ {index} return {value}; }}"
            out.line(f"const et::Batch<{STORAGE[x.value.dtype]}, {each}> {batch}({given});")
            out.scalars.values[x.name] = f"{batch}.at[n]"
        self._inside(out, s, f"ET_UNROLLED for (int n = 0; n < {each}; ++n)", [index])

    def _inside(self, out: BodyPrinter, s: st.Elements, head: str, lines: list[str]) -> None:
        out.line(f"{head} {{")
        out.depth += 1
        for text in lines:
            out.line(text)
        serial = [s.axes[k] for k in sorted(s.serial)]
        for a in serial:
            var = cpp_name(a.var)
            out.line(f"for (int64_t {var} = 0; {var} < {out.scalars(a.extent)}; ++{var})")
            out.depth += 1
        out.block(s.body)
        out.depth -= 1 + len(serial)
        out.line("}")
