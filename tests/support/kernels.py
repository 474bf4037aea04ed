"""Bodies in kernel IR for tests of its passes and of its verifier, and edits of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import eventtensor as et
from eventtensor.codegen.cpp.kernel import PLAIN, KernelWriter
from eventtensor.codegen.cuda.kernel import BlockWriter
from eventtensor.compiler import run_passes
from eventtensor.config import Options
from eventtensor.ir.expr import Const, Node, Var, wrap
from eventtensor.ir.program import PlacedCall
from eventtensor.kernel_ir import buffers as bf
from eventtensor.kernel_ir import scalar_values as v
from eventtensor.kernel_ir import statements as st
from eventtensor.kernel_ir.body_record import Opaque
from eventtensor.kernel_ir.distributions import Linear
from eventtensor.kernel_ir.kernel_text import function_text
from eventtensor.kernel_ir.scopes import Scope, Space
from eventtensor.targets.devices import DEFAULT_DEVICE


@et.task
def softmax(x, out):
    e = et.exp(x - x.max(axis=1)[:, None])
    out[:] = e / e.sum(axis=1)[:, None]


@et.task
def flip(x, out):
    y = x * 2.0
    out[:] = y.T + y.sum()


@et.task
def carried(x, out):
    total = et.zeros((x.shape[1],), et.f32)
    for c in et.range(x.shape[0]):
        row = x[c] * 2.0
        total[:] = total + row * row.sum()
    out[:] = total


@et.task
def copy(x, out):
    out[:] = x


@et.task
def halves(x, out):
    out[:16] = x[16:] + 1.0
    out[16:] = x[:16]


@et.task
def best(x, out):
    out[:] = et.argmax(x * 2.0)


@et.task
def add_in(x, total):
    total[:] += x


def _one(
    name: str,
    task: et.Task,
    x: tuple[object, ...],
    out: tuple[object, ...],
    dtype: et.DType = et.f32,
) -> et.Program:
    p = et.Program(name)
    a, b = p.input("x", x, et.f32), p.output("out", out, dtype)
    p.call(
        task,
        name="go",
        grid=(),
        reads=lambda: a[tuple(slice(None) for _ in x)],
        writes=lambda: b[tuple(slice(None) for _ in out)],
    )
    return p


def _gathered() -> et.Program:
    p, n = et.Program("gathered"), et.dim("n", max=64)
    x, order = p.input("x", (60, 32), et.f32), p.input("order", (n,), et.i32, bound=59)
    out = p.output("out", (n, 32), et.f32)
    p.call(copy, name="go", grid=(), reads=lambda: x[order[:], :], writes=lambda: out[:, :])
    return p


def _scattered() -> et.Program:
    p, n = et.Program("scattered"), et.dim("n", max=60)
    x = p.input("x", (n, 32), et.f32)
    order = p.input("order", (n,), et.i32, bound=59, distinct=True)
    out = p.output("out", (60, 32), et.f32, partial=True)
    p.call(copy, name="go", grid=(), reads=lambda: x[:, :], writes=lambda: out[order[:], :])
    return p


def _added() -> et.Program:
    p, n = et.Program("added"), et.dim("n", max=64)
    x, total = p.input("x", (n, 32), et.f32), p.output("total", (32,), et.f32)
    p.call(
        add_in,
        name="go",
        grid=(n,),
        reads=lambda i: x[i, :],
        accumulates=lambda i: total[:],
        unordered=True,
    )
    return p


# Programs whose call `go` has an elementwise body or one with folds.
KERNELS: dict[str, Callable[[], et.Program]] = {
    "softmax": lambda: _one("softmax", softmax, (n := et.dim("n", max=64), 128), (n, 128)),
    "flip": lambda: _one("flip", flip, (24, 40), (40, 24)),
    "carried": lambda: _one("carried", carried, (et.dim("n", max=9), 96), (96,)),
    "copy": lambda: _one("copy", copy, (1024,), (1024,)),
    "halves": lambda: _one("halves", halves, (32,), (32,)),
    "best": lambda: _one("best", best, (4, 512), (4,), et.i32),
    "gathered": _gathered,
    "scattered": _scattered,
    "added": _added,
}


def functions(program: et.Program, target: str = "cuda") -> dict[str, st.Function]:
    """The bodies of a program that are kernel IR, by call."""
    device = {"device": "h200"} if target == "cuda" else {}
    plan = run_passes(program, Options(target, handoff="counter", **device)).plan
    assert plan is not None
    writer = (
        BlockWriter(plan, DEFAULT_DEVICE, PLAIN) if target == "cuda" else KernelWriter(plan, PLAIN)
    )
    writer.text()
    return {name: b.code for name, b in writer.bodies.items() if not isinstance(b.code, Opaque)}


def kernel(name: str, target: str = "cuda") -> st.Function:
    return functions(KERNELS[name](), target)["go"]


# ---- edits -----------------------------------------------------------------------------------

Edit = Callable[[st.Stmt], st.Block]


def edited(f: st.Function, kind: type[st.Stmt], edit: Edit, number: int = 0) -> st.Function:
    """The function with other statements for the one of a kind with this number, in order."""
    left = [number]

    def block(body: st.Block) -> st.Block:
        out: list[st.Stmt] = []
        for s in body:
            if isinstance(s, kind):
                left[0] -= 1
                if left[0] == -1:
                    out += edit(s)
                    continue
            if isinstance(s, st.Elements | st.For | st.If | st.Elect):
                s = replace(s, body=block(s.body))
            out.append(s)
        return tuple(out)

    made = replace(f, body=block(f.body))
    assert left[0] < 0, f"{f.name} has no {kind.__name__} number {number}"
    return made


def without(f: st.Function, kind: type[st.Stmt], number: int = 0) -> st.Function:
    return edited(f, kind, lambda s: (), number)


# ---- bodies by hand --------------------------------------------------------------------------

N = et.dim("n", max=4096)
INDEX = Var("$i0")


def vector(name: str, extent: Node | int = N, space: Space = Space.arena) -> bf.View:
    return bf.tile(name, bf.Buffer(name, space, et.f32, (wrap(extent),)))


def matrix(name: str, rows: int, columns: int) -> bf.View:
    return bf.tile(name, bf.Buffer(name, Space.arena, et.f32, (Const(rows), Const(columns))))


def given(*views: bf.View) -> st.Waits:
    return st.Waits((), Scope.role, Scope.role, (), views)


def assign(to: bf.View, value: v.Scalar) -> st.Elements:
    """A loop over the elements of a vector."""
    store = st.Store(to, (INDEX,), value)
    return st.Elements((st.Axis("$i0", to.extents[0]),), Linear(), (store,))


def at(view: bf.View, index: Node = INDEX) -> v.Element:
    return v.Element(view, (index,))


@cache
def _call() -> PlacedCall:
    return KERNELS["copy"]().build().placed("go")


def body(*stmts: st.Stmt) -> st.Function:
    return st.Function(_call(), 256, stmts)


def shown(f: st.Function) -> str:
    """The statements of a function, without its first line."""
    return "\n".join(line[2:] for line in function_text(f).split("\n")[1:-1])
