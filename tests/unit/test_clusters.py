"""When something may stay in a cluster, and why not."""

from __future__ import annotations

from typing import Any

import pytest
from support.clusters import add_parts, clustered, scale, scaled_parts, some, split_product
from support.handoffs import copy
from support.streams import panels_of, panels_shape

import eventtensor as et
from eventtensor.errors import BadOption
from eventtensor.ir.clusters import Cluster, clusters, share
from eventtensor.ir.plan import HandoffKind


def refusal(program: et.Program, schedule: Any = "static:round_robin") -> str:
    with pytest.raises(BadOption) as caught:
        clustered(program, schedule=schedule)
    return str(caught.value)


def test_what_members_make_for_each_other_stays_there() -> None:
    plan = clustered(scaled_parts())
    (h,) = (h for h in plan.handoffs if h.event == "make_done")
    assert (h.kind, h.tensors) == (HandoffKind.cluster, ("part",))
    (c,) = clusters(plan)
    assert c == Cluster("part", "make", "take", 2, 0, 4)


def test_auto_counts() -> None:
    plan = clustered(scaled_parts(), handoff="auto")
    assert HandoffKind.cluster not in {h.kind for h in plan.handoffs}


@pytest.mark.parametrize("first_axis, axis, strides", [(True, 0, "0 16 1"), (False, 1, "16 0 1")])
def test_where_a_member_finds_its_share(first_axis: bool, axis: int, strides: str) -> None:
    plan = clustered(scaled_parts(first_axis=first_axis))
    found = share(plan.program, clusters(plan)[0])
    assert found is not None and found.axis == axis
    assert " ".join(map(str, found.strides)) == strides
    assert str(found.offset) == "min(T, s*2)*16"


def parts(
    members: int = 4, role: str = "scratch", tile: int = 8, taken: str = "all",
    between: bool = False, second: bool = False, dtype: Any = et.f32,
) -> et.Program:
    """Tiles of `tile` columns in `members` parts, and what takes them: all parts of its own tile,
    of another one, or some parts only; with a call between, or a second one that reads."""
    p = et.Program("parts")
    x = p.input("x", (members, 8, 32), dtype)
    h = p.input("h", (8, 32), dtype)
    part = getattr(p, role)("part", (members, 8, 32), dtype)
    o, q, z = (p.output(n, (8, 32), dtype) for n in "oqz")
    tiles, own = 32 // tile, 8 // members

    def columns(i: Any) -> slice:
        return some(tiles - 1 - i if taken == "other" else i, tile)

    p.call(scale, name="make", grid=(tiles, members),
           reads=lambda i, s: (x[s, :, some(i, tile)], h[:, some(i, tile)]),
           writes=lambda i, s: part[s, :, some(i, tile)])
    if between:
        p.call(copy, name="between", grid=(8,), reads=lambda t: h[t, :], writes=lambda t: q[t, :])
    first = slice(0, members // 2) if taken == "some" else slice(None)
    p.call(add_parts, name="take", grid=(tiles, members),
           reads=lambda i, s: (part[first, some(s, own), columns(i)], h[some(s, own), columns(i)]),
           writes=lambda i, s: o[some(s, own), columns(i)])
    if second:
        p.call(copy, name="second", grid=(8,), reads=lambda t: part[0, t, :],
               writes=lambda t: z[t, :])
    return p


REFUSED: dict[str, tuple[et.Program, Any, str]] = {
    "claimed": (parts(), "ticket", "claimed at run time"),
    "shifted": (parts(), {"make": "static:balanced", "take": "static:balanced"}, "begin with a cl"),
    "odd": (parts(members=1), "static:round_robin", "none of 2, 4, 8 tiles"),
    "apart": (parts(between=True), "static:round_robin", "does not follow make at once"),
    "other tiles": (parts(taken="other"), "static:round_robin", "tiles of other clusters"),
    "some parts": (parts(taken="some"), "static:round_robin", "an axis for the members"),
    "output": (parts(role="output"), "static:round_robin", "no scratch of four bytes"),
    "short elements": (parts(dtype=et.bf16), "static:round_robin", "no scratch of four bytes"),
    "two readers": (parts(second=True), "static:round_robin", "others touch part"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name: str) -> None:
    program, schedule, why = REFUSED[name]
    how = tuple(schedule.items()) if isinstance(schedule, dict) else schedule
    assert why in refusal(program, how)


def test_all_clusters_of_a_kernel_have_one_size() -> None:
    p = et.Program("two_sizes")
    h = p.input("h", (8, 32), et.f32)
    for n in (2, 4):
        x, part = p.input(f"x{n}", (n, 8, 32), et.f32), p.scratch(f"part{n}", (n, 8, 32), et.f32)
        o = p.output(f"o{n}", (8, 32), et.f32)
        p.call(scale, name=f"make{n}", grid=(4, n),
               reads=lambda i, s, x=x: (x[s, :, some(i, 8)], h[:, some(i, 8)]),
               writes=lambda i, s, part=part: part[s, :, some(i, 8)])
        p.call(add_parts, name=f"take{n}", grid=(4, n),
               reads=lambda i, s, part=part, n=n: (part[:, some(s, 8 // n), some(i, 8)],
                                                   h[some(s, 8 // n), some(i, 8)]),
               writes=lambda i, s, o=o, n=n: o[some(s, 8 // n), some(i, 8)])
    plan = clustered(p, handoff="cluster")
    assert {h.event: h.kind.value for h in plan.handoffs} == {
        "make2_done": "cluster", "make4_done": "counter"}


def test_no_call_is_in_two_clusters() -> None:
    """Who takes makes for the next one."""
    p = et.Program("in_turn")
    x = p.input("x", (4, 8, 32), et.f32)
    one, two = (p.scratch(n, (4, 8, 32), et.f32) for n in ("one", "two"))
    o = p.output("o", (4, 8, 32), et.f32)

    @et.task
    def rotate(x, out):
        out[:] = x.sum(axis=0, keepdims=True)[0] if len(x.shape) == 3 else x

    for name, source, target in (("a", x, one), ("b", one, two), ("c", two, o)):
        first = slice(None) if source is not x else None
        p.call(rotate, name=name, grid=(4, 4),
               reads=lambda i, s, source=source, first=first: (
                   source[s if first is None else first, :, some(i, 8)]),
               writes=lambda i, s, target=target: target[s, :, some(i, 8)])
    plan = clustered(p, handoff="cluster")
    assert {h.event: (h.kind.value, h.reason) for h in plan.handoffs} == {
        "a_done": ("cluster", "asked for"),
        "b_done": ("counter", "b is in another cluster already")}


def test_tiles_that_do_not_fit_are_refused() -> None:
    assert "more than 32768 bytes" in refusal(split_product(256))


def test_the_loader_may_not_bring_operands_of_who_takes() -> None:
    p = et.Program("streams")
    x, w = p.input("x", (4, 4, 64), et.f32), p.weight("w", panels_shape(4, 512), et.bf16)
    y = p.input("y", (4, 512), et.bf16)
    part, o = p.scratch("part", (4, 4, 64), et.f32), p.output("o", (4, 64), et.f32)

    @et.task
    def with_product(parts, y, w, out):
        out[:] = parts.sum(axis=0) + y @ panels_of(w)

    @et.task
    def same(x, out):
        out[:] = x

    p.call(same, name="make", grid=(4, 4), reads=lambda i, s: x[s, :, some(i, 16)],
           writes=lambda i, s: part[s, :, some(i, 16)])
    p.call(with_product, name="take", grid=(4, 4),
           reads=lambda i, s: (part[:, s : s + 1, some(i, 16)], y[s : s + 1, :],
                               w[i : i + 1, :, :, :, :, :, :]),
           writes=lambda i, s: o[s : s + 1, some(i, 16)])
    assert "the loader brings operands of take" in refusal(p)
