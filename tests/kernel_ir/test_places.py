"""Check 6: accesses lie inside memory that is alive. Each broken body has a legal neighbour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from eventtensor.errors import OutsideMemory
from eventtensor.ir.expr import Const, Var, add
from eventtensor.ir.tensor import DType, Region, Slice
from eventtensor.kernel_ir import buffers as bf
from eventtensor.kernel_ir import scalar_values as v
from eventtensor.kernel_ir import statements as st
from eventtensor.kernel_ir.verify.places import check_places
from tests.support.kernels import (
    KERNELS,
    N,
    assign,
    at,
    body,
    edited,
    given,
    kernel,
    vector,
    without,
)

X, V, Y = vector("x"), vector("v"), vector("y")
HALVES, SOFTMAX, GATHERED = kernel("halves"), kernel("softmax"), kernel("gathered")


def stores(change: Callable[[st.Store], st.Store]) -> Callable[[st.Stmt], st.Block]:
    def edit(s: st.Stmt) -> st.Block:
        assert isinstance(s, st.Store)
        return (change(s),)

    return edit


def wider(s: st.Stmt) -> st.Block:
    """A loop over one element more."""
    assert isinstance(s, st.Elements)
    axes = (replace(s.axes[0], extent=add(s.axes[0].extent, Const(1))), *s.axes[1:])
    return (replace(s, axes=axes),)


def longer_fold(s: st.Stmt) -> st.Block:
    assert isinstance(s, st.Let) and isinstance(s.value, v.Fold)
    return (replace(s, value=replace(s.value, extent=Const(129))),)


def moved_part(by: int) -> Callable[[st.Stmt], st.Block]:
    def edit(s: st.Stmt) -> st.Block:
        assert isinstance(s, st.Point) and isinstance(s.view.origin, bf.Part)
        starts = tuple(add(e, Const(by)) for e in s.view.origin.starts)
        return (replace(s, view=replace(s.view, origin=replace(s.view.origin, starts=starts))),)

    return edit


def other_region(s: st.Stmt) -> st.Block:
    assert isinstance(s, st.Bind) and s.view.region is not None
    axes = (Slice(Const(1), add(N, Const(1))), *s.view.region.axes[1:])
    return (replace(s, view=replace(s.view, region=Region(s.view.region.tensor, axes))),)


def other_extents(s: st.Stmt) -> st.Block:
    assert isinstance(s, st.Bind)
    return (replace(s, view=replace(s.view, extents=(add(N, Const(1)), *s.view.extents[1:]))),)


def picked(extent: int) -> st.Function:
    """An element of eight that a value picks."""
    eight = vector("x", 8)
    inner = v.Element(eight, (Var("$g1"),))
    pick = v.Pick("$g1", at(vector("w")), Const(extent), False, inner)
    return body(given(eight, vector("w")), st.Allocate(V), assign(V, pick))


def in_other_shape(*extents: int) -> st.Function:
    twelve = vector("x", 12)
    view = bf.reshaped(twelve, tuple(Const(n) for n in extents))
    return body(given(twelve), st.Let("%1", v.Element(view, (Const(2), Const(3)))))


def with_strides(*strides: int) -> st.Function:
    grid = bf.tile("x", bf.Buffer("x", X.buffer.space, DType.f32, (Const(3), Const(4))))
    turned = replace(bf.permuted(grid, (1, 0)), strides=tuple(Const(n) for n in strides))
    return body(given(grid), st.Let("%1", v.Element(turned, (Const(3), Const(2)))))


def repeated_to(*extents: int) -> st.Function:
    line = bf.tile("x", bf.Buffer("x", X.buffer.space, DType.f32, (Const(1), Const(4))))
    view = bf.repeated(line, tuple(Const(n) for n in extents))
    return body(given(line), st.Let("%1", v.Element(view, (Const(2), Const(3)))))


def after_loop(read_inside: bool) -> st.Function:
    use = assign(Y, at(V))
    inner = (st.Allocate(V), assign(V, at(X)), *((use,) if read_inside else ()))
    return body(given(X), st.Allocate(Y), st.For("%3", N, inner), *(() if read_inside else (use,)))


FILL, USE = assign(V, at(X)), assign(Y, at(V))
BEGIN = (given(X), st.Allocate(V), st.Allocate(Y))

# name: (broken, its legal neighbour, a part of the reason)
CASES: dict[str, tuple[st.Function, st.Function, str]] = {
    "an index past its extent": (
        edited(HALVES, st.Store, stores(lambda s: replace(s, index=(add(s.index[0], Const(1)),)))),
        HALVES,
        "is below 16",
    ),
    "an index before the first": (
        edited(HALVES, st.Store, stores(lambda s: replace(s, index=(add(s.index[0], Const(-1)),)))),
        HALVES,
        "is below 16",
    ),
    "axes of an index in other order": (
        edited(SOFTMAX, st.Store, stores(lambda s: replace(s, index=s.index[::-1])), 1),
        SOFTMAX,
        "is below n",
    ),
    "a loop over more than the view": (
        edited(SOFTMAX, st.Elements, wider, 1),
        SOFTMAX,
        "is below n",
    ),
    "a fold of more than the axis": (edited(SOFTMAX, st.Let, longer_fold), SOFTMAX, "is below 128"),
    "a part that begins too late": (
        edited(HALVES, st.Point, moved_part(1)),
        HALVES,
        "nothing shows that 17 and 16 more",
    ),
    "a part of the second argument that begins too late": (
        edited(HALVES, st.Point, moved_part(9), 1),
        HALVES,
        "nothing shows that 25 and 16 more",
    ),
    "a region that the plan has not proved": (
        edited(SOFTMAX, st.Bind, other_region),
        SOFTMAX,
        "the plan has proved no region",
    ),
    "a view of other extents than its region": (
        edited(GATHERED, st.Bind, other_extents, 1),
        GATHERED,
        "other extents",
    ),
    "a view that nothing has made": (
        without(SOFTMAX, st.Bind),
        SOFTMAX,
        "nothing has made the view 'x'",
    ),
    "a value that picks beyond the axis": (picked(9), picked(8), "is below 8"),
    "another number of elements in another shape": (
        in_other_shape(4, 4),
        in_other_shape(3, 4),
        "another number of elements",
    ),
    "strides of another layout": (
        with_strides(4, 1),
        with_strides(1, 4),
        "not laid out as its origin says",
    ),
    "an axis of more than one element that repeats": (
        repeated_to(3, 8),
        repeated_to(3, 4),
        "repeats an axis",
    ),
    "memory whose life is over": (after_loop(False), after_loop(True), "the life of 'v' is over"),
    "two uses of one buffer at a time": (
        body(given(X), st.Allocate(V), FILL, st.Allocate(V), FILL),
        body(given(X), st.For("%3", N, (st.Allocate(V), FILL)), st.Allocate(V), FILL),
        "has memory already",
    ),
    "a load before its store": (
        body(*BEGIN, USE, FILL),
        body(*BEGIN, FILL, USE),
        "is read before anything is written",
    ),
    "a store without memory": (
        body(given(X), st.Allocate(Y), FILL),
        body(given(X), st.Allocate(V), FILL),
        "nothing has made the view 'v'",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_not_seen_to_lie_inside_is_refused(case: str) -> None:
    broken, _, reason = CASES[case]
    with pytest.raises(OutsideMemory) as found:
        check_places(broken)
    assert reason in found.value.reason and found.value.path


@pytest.mark.parametrize("case", CASES)
def test_its_legal_neighbour_passes(case: str) -> None:
    check_places(CASES[case][1])


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("name", KERNELS)
def test_lowered_bodies_pass(name: str, target: str) -> None:
    check_places(kernel(name, target))
