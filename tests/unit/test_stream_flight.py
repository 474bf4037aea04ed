"""How many bytes of a stream may be in flight, and what a tuned body's own text brings."""

from __future__ import annotations

from typing import Any

import pytest

import eventtensor as et
from eventtensor.codegen.cuda import generate
from eventtensor.ir.plan import StreamKind
from tests.support.handoffs import copy
from tests.support.streams import kinds, packed_product, panels_shape, plan_of


def waits(panels: int, by_data: bool = False) -> et.Program:
    p = et.Program("waits")
    x, y = p.input("x", (1, 2048), et.bf16), p.scratch("y", (1, 2048), et.bf16)
    place = p.input("place", (132,), et.i32, bound=131)
    w = p.weight("w", panels_shape(132 * panels, 2048), et.bf16)
    z = p.output("z", (1, 132 * 16 * panels), et.f32)

    def some(i: Any) -> slice:
        first = panels * (place[i] if by_data else i)
        return slice(first, first + panels)

    p.call(copy, name="make", grid=(), reads=lambda: x[:, :], writes=lambda: y[:, :])
    p.call(packed_product, name="go", grid=(132,),
           reads=lambda i: (y[:, :], w[some(i), :, :, :, :, :, :]),
           writes=lambda i: z[:, 16 * panels * i : 16 * panels * (i + 1)])
    return p


@pytest.mark.parametrize("panels, by_data, cap, rush", [
    (8, False, 48, 176), (2, False, 48, 0), (8, True, 176, 0), (2, True, 96, 0)])
def test_long_tasks_may_have_more_in_flight_once_they_have_begun_or_data_places_them(
    panels: int, by_data: bool, cap: int, rush: int
) -> None:
    """8 panels of 4 KB a row are 512 KB, 2 are 128 KB."""
    (s,) = (s for s in plan_of(waits(panels, by_data)).streams if s.call == "go")
    assert (s.max_bytes_in_flight, s.burst_bytes_in_flight) == (cap * 1024, rush * 1024)


@pytest.mark.parametrize("tiles, cap", [(132, 48), (66, 96), (12, 128)])
def test_fewer_tasks_than_workers_share_what_may_be_in_flight(tiles: int, cap: int) -> None:
    p = et.Program("few")
    x, y = p.input("x", (1, 2048), et.bf16), p.scratch("y", (1, 2048), et.bf16)
    w = p.weight("w", panels_shape(4 * tiles, 2048), et.bf16)
    z = p.output("z", (1, 64 * tiles), et.f32)
    p.call(copy, name="make", grid=(), reads=lambda: x[:, :], writes=lambda: y[:, :])
    p.call(packed_product, name="go", grid=(tiles,),
           reads=lambda i: (y[:, :], w[4 * i : 4 * i + 4, :, :, :, :, :, :]),
           writes=lambda i: z[:, 64 * i : 64 * i + 64])
    (s,) = (s for s in plan_of(p).streams if s.call == "go")
    assert s.max_bytes_in_flight == cap * 1024


@pytest.mark.parametrize("panels, tiles, text", [
    (8, None, "(81920)"), (2, None, "(81920)"),
    (8, 200, "<true>(81920)"), (2, 200, "<true>(81920)"), (8, 100, "<true>(65536)")])
def test_tiles_that_follow_one_another_have_more_in_flight(
    panels: int, tiles: int | None, text: str
) -> None:
    """None: as many as run-time data says."""
    p, n, most = et.Program("counted"), et.dim("n", max=128), tiles or 64
    x, y = p.input("x", (n, 2048), et.bf16), p.scratch("y", (n, 2048), et.bf16)
    active = p.input("active", (1,), et.i32, bound=64)
    w = p.weight("w", panels_shape(most * panels, 2048), et.bf16)
    z = p.output("z", (n, most * 16 * panels), et.f32, partial=tiles is None)
    p.call(copy, name="make", grid=(), reads=lambda: x[:, :], writes=lambda: y[:, :])
    p.call(packed_product, name="go", grid=(active[0] if tiles is None else tiles,),
           reads=lambda i: (y[:, :], w[panels * i : panels * i + panels, :, :, :, :, :, :]),
           writes=lambda i: z[:, 16 * panels * i : 16 * panels * (i + 1)])
    made = generate(plan_of(p)).text
    feed = made[made.index("bool feed_go(et::ProducerWarp& worker") :]
    assert feed.index(f"worker.limit_bytes_in_flight{text};") < feed.index("return true;")


def fed(written: bool) -> et.Program:
    """A tuned body whose text for the loader names w, which another task may write."""
    producer = et.Producer("et::bring(worker, w);", operands=("w",))

    @et.task(cuda=et.CudaBody("et::take<streamed>(worker, x, w, out);", producer=producer))
    def take(x, w, out):
        out[:] = x + w.sum(axis=0)

    p = et.Program("fed")
    x, out = p.input("x", (8, 64), et.f32), p.output("out", (8, 64), et.f32)
    w, given = p.state("w", (8, 16, 64), et.f32), p.input("given", (8, 16, 64), et.f32)
    if written:
        p.call(copy, name="write", grid=(8,), reads=lambda i: given[i, :, :],
               writes=lambda i: w[i, :, :])
    p.call(take, grid=(8,), reads=lambda i: (x[i, :], w[i, :, :]), writes=lambda i: out[i, :])
    return p


def test_a_tuned_body_takes_pages_of_what_no_event_guards() -> None:
    assert kinds(plan_of(fed(False))) == {("take", "w"): StreamKind.hand}
    assert ("take", "w") not in kinds(plan_of(fed(True)))
    assert kinds(plan_of(fed(False), stream=False)) == {}
    assert kinds(plan_of(fed(False), debug=True)) == {}
