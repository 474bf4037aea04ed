"""Programs in which numbers that tasks have made say where the weights of tiles lie."""

from __future__ import annotations

from typing import Any

import eventtensor as et
from tests.support.handoffs import copy


@et.task
def product(x, w, out):
    out[:] = x @ w.T


def single() -> et.Program:
    """A lone number, which a task has made, says where the weights lie."""
    p = et.Program("single")
    x, w = p.input("x", (4, 64), et.bf16), p.weight("w", (8, 16, 64), et.bf16)
    given, y = p.input("given", (), et.i32, bound=(0, 7)), p.output("y", (4, 16), et.f32)
    at = p.scratch("at", (), et.i32, bound=(0, 7))
    p.call(copy, name="plan", grid=(), reads=lambda: given[()], writes=lambda: at[()])
    p.call(product, name="go", grid=(), reads=lambda: (x[:, :], w[at[()], :, :]),
           writes=lambda: y[:, :])
    return p


def listed(size: int = 8, makers: int = 1, times: int = 1) -> et.Program:
    """Numbers that tasks have made say where the weights of each tile lie."""
    p, each = et.Program("listed"), size // makers
    x, w = p.input("x", (4, 64), et.bf16), p.weight("w", (8, 16, 64), et.bf16)
    given, y = p.input("given", (size,), et.i32, bound=7), p.output("y", (8, 4, 16), et.f32)
    at, made = p.scratch("at", (size,), et.i32, bound=7), p.events("made", (), count=makers * times)
    for k in range(times):
        if makers == 1:
            p.call(copy, name=f"list{k}", grid=(), reads=lambda: given[:], writes=lambda: at[:],
                   notifies=lambda: made[()])
        else:
            p.call(copy, name=f"list{k}", grid=(makers,),
                   reads=lambda i: given[i * each : i * each + each],
                   writes=lambda i: at[i * each : i * each + each], notifies=lambda i: made[()])
    p.call(product, name="go", grid=(8,), reads=lambda i: (x[:, :], w[at[i], :, :]),
           writes=lambda i: y[i, :, :], waits=lambda i: made[()])
    return p


@et.task
def numbered(x, w, number, out):
    out[:] = x @ w.T + number.cast(et.f32)


@et.task
def find(scores, at):
    whole = scores[0, :][None, :]
    for k in range(1, int(scores.shape[0])):
        whole = whole + scores[k, :][None, :]
    at[:] = et.topk(whole, int(at.shape[0]))[1][0]


@et.task
def one_more(at):
    at[:] += et.full((8,), 1, et.i32)


def ranked(
    parts: int = 3, size: int = 64, kind: Any = find, *, first: int = 0, row: int = 8, gap: int = 0,
    told: bool = False, tells: bool = False, also: bool = False, added: bool = False,
    times: int = 0,
) -> et.Program:
    """The places of the best scores, which come in parts, `gap` elements behind each, say where the
    weights of each tile lie: numbers `first`, .. of a `row`. `told`: it has them as an operand,
    too; `tells`: it tells of them; `also`: somebody else has them, who waits for nothing but the
    products; `added`: somebody changes them; `times`: all of them are multiplied by so often."""
    p = et.Program("ranked")
    x, w = p.input("x", (4, 64), et.bf16), p.weight("w", (size, 16, 64), et.bf16)
    given, turns = p.input("given", (parts, size), et.f32), max(times, 1)
    y = p.output("y", (8 * turns, 4, 16), et.f32)
    scores = p.scratch("scores", (parts, size + gap), et.f32)
    at = p.scratch("at", (row,), et.i32, bound=size - 1)
    scored, known = p.events("scored", ()), p.events("known", (), count=1 + added)
    p.call(copy, name="score", grid=(parts, size // 16),
           reads=lambda k, i: given[k, i * 16 : i * 16 + 16],
           writes=lambda k, i: scores[k, i * 16 : i * 16 + 16], notifies=lambda k, i: scored[()])
    p.call(kind, name="rank", grid=(), reads=lambda: scores[:, 0:size],
           writes=lambda: at[first : first + 8], waits=lambda: scored[()],
           notifies=lambda: known[()])
    if added:
        p.call(one_more, name="add", grid=(), accumulates=lambda: at[first : first + 8],
               notifies=lambda: known[()])
    done = p.events("done", (), count=8 * turns)
    hits = p.input("hits", (size,), et.i32, bound=8) if tells else None
    heard = p.events("heard", (size,), count=lambda e: hits[e]) if hits is not None else None

    def go(t: Any) -> None:
        p.call(numbered if told else product, name="go", grid=(8,),
               reads=lambda i: (x[:, :], w[at[i + first], :, :], *((at[i],) if told else ())),
               writes=lambda i: y[8 * t + i, :, :], waits=lambda i: known[()],
               notifies=lambda i: (done[()], *((heard[at[i]],) if heard is not None else ())))

    if times:
        with p.loop("t", times) as t:
            go(t)
    else:
        go(0)
    if also or heard is not None:
        seen = p.output("seen", (8,), et.i32)
        p.call(copy, name="tell", grid=(), reads=lambda: at[0:8], writes=lambda: seen[:],
               waits=lambda: (done[()], *((heard[:],) if heard is not None else ())))
    return p
