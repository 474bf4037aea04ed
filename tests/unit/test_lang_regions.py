"""What indexing a tensor gives, and which indices are refused at once."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

import eventtensor as et
from eventtensor import errors
from eventtensor.ir.expr import Const, Load, Var
from eventtensor.ir.tensor import Pad, Point, Rows, Slice, tile_shape

R, J = Var("i"), Var("j")


def tensors() -> tuple[object, object, object]:
    n = et.dim("n")
    p = et.Program("p")
    return (
        p.input("a", (n, 128), et.f32),
        p.input("topk", (n, 2), et.i32, bound=7),
        p.input("ptr", (9,), et.i64, bound=n),
    )


def test_points_and_slices():
    a, _, _ = tensors()
    assert a[R, 3].region.axes == (Point(R), Point(Const(3)))
    n = a.shape[0]
    assert a[:, J:].region.axes == (Slice(Const(0), n), Slice(J, Const(128)))
    assert a[R : R + 2, :64].region.axes == (Slice(R, R + 2), Slice(Const(0), Const(64)))


def test_an_integer_element_is_an_index_expression():
    a, _, ptr = tensors()
    load = Load("ptr", (R,))
    assert ptr[R] + 1 == load + 1 and 1 + ptr[R] == load + 1
    assert 4 - ptr[R] == 4 - load and ptr[R] - 4 == load - 4
    assert ptr[R] * 2 == load * 2 == 2 * ptr[R] and -ptr[R] == -load
    assert ptr[R] // 2 == load // 2 and ptr[R] % 2 == load % 2
    assert ptr[R].tiles(8) == load.tiles(8)
    assert (ptr[R] <= J) == (load <= J) and et.equal(ptr[R], J) == et.equal(load, J)
    assert et.min(ptr[R], 4) == et.minimum(load, 4) and et.max(J, ptr[R], 3) is not None
    region = a[ptr[R] : ptr[R + 1], :].region
    assert region.axes[0] == Slice(load, Load("ptr", (R + 1,)))


def test_a_slice_of_an_integer_tensor_gathers_rows():
    a, topk, ptr = tensors()
    rows = a[topk[R, :], 0:64].region.axes[0]
    assert rows == Rows("_r0", Const(2), Load("topk", (R, Var("_r0"))))
    part = a[0:4, ptr[2:4]].region.axes[1]
    assert part == Rows("_r1", Const(2), Load("ptr", (Var("_r1") + 2,)))
    assert isinstance(a[ptr, 0].region.axes[0], Rows)


def test_padding_keeps_the_nominal_shape():
    a, _, _ = tensors()
    region = a.padded(1, (2, 3), 0)[R - 1 : R + 3, J].region
    assert region.pad == Pad((1, 1), (2, 3), 0.0)
    assert tile_shape(region, a.tensor) == (Const(4),)
    assert a.padded(1, 1, math.nan)[R, J].region == a.padded(1, 1, float("nan"))[R, J].region


def test_an_axis_without_padding_is_clipped_among_padded_ones():
    a, _, _ = tensors()
    region = a.padded((1, 0), (1, 0))[R - 1 : R + 3, J : J + 4].region
    (clipped,) = tile_shape(a[R, J : J + 4].region, a.tensor)
    assert tile_shape(region, a.tensor) == (Const(4), clipped)
    assert str(region).startswith("a.padded([1, None], [1, None], 0.0)[")
    for filled in (a.padded(0, 0), a.padded((0, 0), (1, 1))):
        assert tile_shape(filled[R, J : J + 4].region, a.tensor) == (Const(4),)


def test_an_axis_that_cannot_overhang_has_no_mark():
    a, _, _ = tensors()
    for key in ((slice(R - 1, R + 3), slice(None)), (slice(R - 1, R + 3), J)):
        region = a.padded((1, 0), (1, 0))[key].region
        assert region.pad == Pad((1, 0), (1, 0), 0.0)


@pytest.mark.parametrize("index", [
    lambda a, t: a[R],
    lambda a, t: a[R, J, 0],
    lambda a, t: a[...],
    lambda a, t: a[R, None],
    lambda a, t: a[R, 1.5],
    lambda a, t: a[R, "x"],
    lambda a, t: a[R, True],
    lambda a, t: a[0:8:2, J],
    lambda a, t: a[-1, J],
    lambda a, t: a[-1:4, J],
    lambda a, t: a[R, 128],
    lambda a, t: a[R, 130:132],
    lambda a, t: a[R, 4:4],
    lambda a, t: a[R + 3 : R + 1, J],
    lambda a, t: a[a[R, 0], J],
    lambda a, t: a[a[R, :], J],
    lambda a, t: a[t, J],
    lambda a, t: a[a[R, 0] + 1, J],
    lambda a, t: a[a[t[0, :], 0], J],
    lambda a, t: t[t[t[0, :], 0], 0],
    lambda a, t: a[t[0, :] + 1, J],
    lambda a, t: a[R, :][0],
    lambda a, t: list(a),
    lambda a, t: list(a[R, :]),
    lambda a, t: a.padded((1,), 1),
    lambda a, t: a.padded(-1, 1),
    lambda a, t: a.padded(1, 1, "x"),
    lambda a, t: t.padded(1, 1, 0.5),
    lambda a, t: a.padded(1, 1)[-2, J],
])
def test_indices_that_cannot_fit_are_refused_at_once(index: Callable[..., object]):
    a, topk, _ = tensors()
    with pytest.raises(errors.BadRegion):
        index(a, topk)


def test_padded_regions_are_read_only():
    p = et.Program("p")
    a = p.output("a", (8,), et.f32)

    @et.task
    def fill(out):
        out[:] = 0.0

    for region in (a.padded(1, 1)[0:2], a.padded(1, 1)):
        with pytest.raises(errors.BadRegion):
            p.call(fill, grid=(1,), writes=region)


def test_comparing_an_element_with_equals_is_refused():
    _, _, ptr = tensors()
    with pytest.raises(errors.NonAffine, match="=="):
        assert ptr[R] == 3
    with pytest.raises(errors.NonAffine):
        bool(ptr[R] <= 3)


def test_errors_print_code_place_and_hint():
    a, _, _ = tensors()
    with pytest.raises(errors.BadRegion) as caught:
        _ = a[R]
    lines = str(caught.value).split("\n")
    assert lines[0].startswith("ET005: a has 2 axes and is indexed with 1")
    assert lines[1].startswith("  at test_lang_regions.py:")
    assert lines[2].startswith("  hint: ")
