"""Programs print as text that parses back to an equal program, for every construct."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eventtensor as et
from eventtensor.ir.expr import Const, Dim, Node, Var, compare, load, maximum, minimum, select, text
from eventtensor.ir.parse_expr import ExprReader
from eventtensor.ir.plan import (
    Buffer,
    CallPlan,
    Guard,
    Hazard,
    Nest,
    NestAxis,
    Notify,
    Plan,
    Policy,
    Release,
    Schedule,
    ScheduleKind,
    Wait,
)
from eventtensor.ir.program import EventTensor, Loop, Program
from eventtensor.ir.text import nest_text, plan_text
from eventtensor.ir.tile import Let, Literal, TileType

N = et.dim("n", max=4096)
EXPERTS, K, TILE = 8, 2, 16


def row_sum() -> et.Program:
    p = et.Program("row_sum")
    a = p.input("a", (N, 128), et.f32)
    b = p.scratch("b", (N, 4), et.f32)
    c = p.output("c", (N,), et.f32)
    event = p.events("E", (N.tiles(32),), count=4)

    @et.task
    def partial_sum(x, out):
        out[:] = x.sum(axis=1)

    p.call(partial_sum, grid=(N.tiles(32), 4),
           reads=lambda i, j: a[i * 32 : i * 32 + 32, j * 32 : j * 32 + 32],
           writes=lambda i, j: b[i * 32 : i * 32 + 32, j],
           notifies=lambda i, j: event[i], waits=())
    p.call(partial_sum, grid=(N.tiles(32),), reads=lambda i: b[i * 32 : i * 32 + 32, :],
           writes=lambda i: c[i * 32 : i * 32 + 32], waits=lambda i: event[i], name="final_sum")
    return p


def moe() -> et.Program:
    p = et.Program("moe")
    x = p.input("x", (N, 64), et.bf16)
    w = p.weight("w", (EXPERTS, 64, 64), et.bf16)
    topk = p.scratch("topk", (N, K), et.i32, bound=EXPERTS - 1, distinct=(1,))
    ptr = p.scratch("ptr", (EXPERTS + 1,), et.i32, bound=(0, N * K), monotone=True)
    order = p.scratch("order", (N * K,), et.i32, bound=N - 1, distinct=True)
    h = p.scratch("h", (N * K, 64), et.f32)
    y = p.output("y", (N, 64), et.f32)
    routed = p.events("routed", (EXPERTS,), count=lambda e: ptr[e + 1] - ptr[e])
    p.fact(lambda e: [ptr[e] <= ptr[e + 1], et.equal(ptr[0], 0)], over=(EXPERTS,))

    @et.task
    def route(x, out):
        _, index = et.topk(x.reshape(8, 8).sum(axis=1), K)
        out[:] = index

    @et.task
    def expert(rows, w, out):
        out[:] = (rows @ w) * et.sigmoid(rows @ w)

    @et.task
    def combine(h, acc):
        acc[:] += h

    p.call(route, grid=(N,), reads=lambda i: x[i, :], writes=lambda i: topk[i, :],
           notifies=lambda i: routed[topk[i, :]])
    p.call(expert, grid=(EXPERTS, lambda e: (ptr[e + 1] - ptr[e]).tiles(TILE)),
           reads=lambda e, t: [
               x[order[ptr[e] + t * TILE : et.min(ptr[e] + t * TILE + TILE, ptr[e + 1])], :],
               w[e, :, :],
           ],
           writes=lambda e, t: h[
               ptr[e] + t * TILE : et.min(ptr[e] + t * TILE + TILE, ptr[e + 1]), :
           ],
           waits=lambda e, t: routed[e])
    p.call(combine, grid=(N,), reads=lambda i: h[i, :],
           accumulates=lambda i: y[order[i], :], unordered=True)
    return p


def stencil() -> et.Program:
    p = et.Program("stencil")
    a = p.state("a", (2, N), et.f16)
    steps = et.dim("steps", min=0)

    @et.task(cpp="for (;;) {\n  x;\n\n}\n", cuda="  // keep \n# not a comment")
    def step(x, y, z, out, *, i, s, n):
        out[:] = et.where(i + s < n, x[0:8] + x[2:10], -math.inf) + y[1] + z[0, 0]

    with p.loop("s", steps) as s, p.loop("q", et.min(s + 1, 3)):
        p.call(step, grid=(N.tiles(8),),
               reads=lambda i: [
                   a.padded((0, 1), (0, 9), math.nan)[s % 2, i * 8 - 1 : i * 8 + 9],
                   a.padded((0, 1), (0, 9), -math.inf)[s % 2, i * 8 - 1 : i * 8 + 9],
                   a.padded((1, 0), (1, 0), 1.0)[s - 1 : s, i * 8 : i * 8 + 8],
               ],
               writes=lambda i: a[(s + 1) % 2, i * 8 : i * 8 + 8])
    return p


def triangle() -> et.Program:
    p = et.Program("triangle")
    a = p.output("a", (N, N), et.f32)
    one = p.output("one", (), et.i64)
    done = p.events("done", ())
    wide = p.events("wide", (4, N), count=lambda r, c: et.max(r + c, N * N))

    @et.task
    def mark(out, *, i, j, k):
        out[:] = et.where((i == j) & (k > 0), 1.5, 0)

    @et.task
    def single(x, out):
        out[:] = et.where(x[0, 0] > 0.0, 1, 0).cast(et.i64)

    with p.loop("k", N):
        p.call(mark, grid=(N, lambda i: i + 1), writes=lambda i, j: a[i, j],
               waits=lambda i, j: wide[0:2, j], notifies=())
    p.call(single, grid=1, reads=a, writes=one, notifies=done)
    return p


def everything() -> et.Program:
    """A body with every operation, nested loops and carries."""
    p = et.Program("everything")
    x = p.input("x", (N, 32), et.f32)
    k = p.input("k", (4,), et.u8)
    flags = p.input("flags", (32,), et.bool_)
    out = p.output("out", (N, 32), et.bf16)

    @et.task
    def body(x, k, flags, out, *, i):
        acc = et.full((32,), math.nan)
        at = k[0] + 0
        for t in et.range(k[1] % 3):
            acc[:] = et.where(flags & ~(acc < 0.5), acc, x[t]) + x[at : at + 2].max(axis=0)
            for u in et.range(t + 1):
                acc[0:4] = x[u, 4:8] - 1e-30
                at[:] = at + 1
        m = x.T @ et.concat([x[:, 0:2], x.transpose(0, 1)[:, 2:4]], axis=1)
        top, index = et.topk(m, 2)
        low = et.gather(acc, index[:, 1], axis=0).cumsum(axis=0) / 3
        low = low + et.histogram(index[:, 0], [1, index[:, 1]], 4).cast(et.f32).max()
        low = low + top.min() + et.argmax(x).cast(et.f32).sum() + et.iota(32).cast(et.f16)
        low = et.exp(low) + et.log(-low) + et.sqrt(et.abs(low)) + et.rsqrt(low) + et.tanh(low)
        out[:] = et.minimum(low, 1e38) % 2.0 // 1.0 + et.maximum(low, i)
        out[0] = 2

    p.call(body, grid=(N,), reads=[x, k, flags], writes=lambda i: out[i, :])
    return p


PROGRAMS = [row_sum, moe, stencil, triangle, everything]


@pytest.mark.parametrize("make", PROGRAMS)
def test_programs_parse_back_equal(make: Callable[[], et.Program]):
    program = make().build()
    again = et.parse(str(program))
    assert again == program
    assert str(again) == str(program)
    assert again.dims == program.dims


@pytest.mark.parametrize("make", PROGRAMS)
def test_every_construct_changes_the_text(make: Callable[[], et.Program]):
    program = make().build()
    lines = str(program).split("\n")
    assert lines[0] == f"program {program.name}"
    assert all(len(line) - len(line.lstrip(" ")) in range(0, 20, 2) for line in lines)
    assert str(program) == str(make().build())


def test_the_text_is_readable():
    assert str(row_sum()).split("\n")[:13] == [
        "program row_sum",
        "dim n in 1..4096",
        "input a : f32[n, 128]",
        "scratch b : f32[n, 4]",
        "output c : f32[n]",
        "event E[(n + 31)//32]; count 4",
        "call partial_sum : partial_sum",
        "  grid i < (n + 31)//32",
        "  grid j < 4",
        "  read a[i*32:i*32 + 32, j*32:j*32 + 32]",
        "  write b[i*32:i*32 + 32, j]",
        "  wait none",
        "  notify E[i]",
    ]


def test_facts_bounds_and_flags_are_in_the_text():
    found = str(moe())
    assert "scratch topk : i32[n, 2]; bound 0 .. 7; distinct 1" in found
    assert "scratch ptr : i32[9]; bound 0 .. n*2; monotone" in found
    assert "fact (ptr[e] <= ptr[e + 1]); e < 8" in found
    assert "event routed[8]; count ptr[c0 + 1] - ptr[c0]" in found
    assert "call combine : combine; unordered" in found
    assert "notify routed[rows(_r0, 2, topk[i, _r0])]" in found
    assert "dim steps in 0..\n" in str(stencil())


def test_schedule_marks_and_derived_events_parse_back():
    program = row_sum().build()
    first = replace(program.body[0], pushed=True, unordered=True)
    events = (EventTensor("D", (N, Const(4)), Var("c0") + 1, derived=True),)
    marked = Program("m", program.tensors, program.events + events, (), (first,))
    assert et.parse(str(marked)) == marked
    assert et.parse(str(marked)) != replace(marked, body=(replace(first, pushed=False),))


def test_comments_and_blank_lines_are_skipped():
    text_ = str(row_sum()).replace("scratch", "# a note\n\nscratch")
    assert et.parse(text_) == row_sum().build()


def test_an_empty_loop_body_and_program_parse_back():
    program = Program("p", (), (), (), (Loop("l", Const(4), ()),))
    assert et.parse(str(program)) == program


# ---- expressions ---------------------------------------------------------------------------

DIMS = {"n": Dim("n", 1, 64), "m": Dim("m", 0)}
LEAVES = st.one_of(
    st.integers(-9, 9).map(Const),
    st.sampled_from([*DIMS.values(), Var("i"), Var("j"), Var("%3"), Var("%12"), Var("_r0")]),
)


def _grow(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    pair, k = st.tuples(inner, inner), st.integers(1, 7)
    return st.one_of(
        pair.map(lambda p: p[0] + p[1]), pair.map(lambda p: p[0] - p[1]),
        pair.map(lambda p: p[0] * p[1]), st.tuples(inner, k).map(lambda p: p[0] // p[1]),
        st.tuples(inner, k).map(lambda p: p[0] % p[1]),
        pair.map(lambda p: minimum(*p)), pair.map(lambda p: maximum(*p)),
        pair.map(lambda p: compare("<=", *p)), pair.map(lambda p: compare("==", *p)),
        st.tuples(inner, inner, inner).map(lambda p: select(*p)),
        pair.map(lambda p: load("t", p)), inner.map(lambda e: load("u", (e,))),
        st.just(load("s", ())),
    )


@settings(max_examples=400, deadline=None)
@given(st.recursive(LEAVES, _grow, max_leaves=12))
def test_any_expression_parses_back_equal(e: Node):
    assert ExprReader(DIMS).expr(text(e)) == e


@settings(max_examples=200, deadline=None)
@given(st.floats(width=64) | st.integers() | st.booleans())
def test_any_literal_parses_back_equal(value: float):
    program = row_sum().build()
    call = program.body[0]
    stmt = Let(99, Literal(value), TileType(et.f32, ()))
    changed = replace(call, body=replace(call.body, stmts=(*call.body.stmts, stmt)))
    made = replace(program, body=(changed,))
    again = et.parse(str(made))
    assert again == made
    found = again.body[0].body.stmts[-1].op.value
    assert type(found) is type(value) and repr(found) == repr(value)


# ---- plans ---------------------------------------------------------------------------------


def test_a_plan_prints_schedule_waits_notifies_and_memory():
    program = row_sum().build()
    i, j = Var("i"), Var("j")
    cells = (Nest((), (), (i,)),)
    loop = Nest((NestAxis("j", Const(0), Const(4), 2),), (compare("<=", j, i),), (i, j))
    first = CallPlan("partial_sum", (Wait("E", cells),), (), (Notify("E", cells),),
                     Schedule(ScheduleKind.static, Policy.balanced, "cheap", i + 1), ("one",))
    second = CallPlan("final_sum", (), (Wait("E", cells, (Guard("b", Hazard.raw),)),), (),
                      Schedule(ScheduleKind.push, Policy.balanced, "", Const(0), 0, ("E",)))
    plan = Plan(program, program.events, (first, second),
                (Release("E", "final_sum", (loop,)),), (Buffer("b", Const(0), N * 16),), N * 16)
    assert plan_text(plan).split("\n") == [
        "plan row_sum",
        "workspace n*16 bytes",
        "buffer b at 0; n*16 bytes",
        "event E[(n + 31)//32]; count 4",
        "call partial_sum: static balanced; shift i + 1",
        "  because cheap",
        "  header wait E: [i]",
        "  notify E: [i]",
        "  note: one",
        "call final_sum: push; group 0; pending E",
        "  wait E: [i]; for b (raw)",
        "release E -> final_sum: for j in 0 .. 4 step 2 if (j <= i): [i, j]",
        "",
    ]
    assert str(plan) == plan_text(plan)
    assert nest_text(cells[0]) == "[i]"
