"""Slices that surely lie inside their tensor: their tiles have constant extents."""

from __future__ import annotations

import eventtensor as et
from eventtensor.ir.expr import Const
from eventtensor.ir.tensor import tile_shape


@et.task
def copy(x, out):
    out[:] = x


@et.task
def fold(x, out):
    out[:] = x.reshape(4, 8).sum(axis=1)


def program(size: int, tile: int, tiles: int, body=copy) -> et.Program:
    p = et.Program("cuts")
    a = p.input("a", (3, size), et.f32)
    b = p.output("b", (3, size) if body is copy else (3, tiles * 4), et.f32)
    out = tile if body is copy else 4
    p.call(body, name="cut", grid=(3, tiles),
           reads=lambda i, j: a[i, j * tile : j * tile + tile],
           writes=lambda i, j: b[i, j * out : j * out + out])
    return p


def shape(p: et.Program):
    built = p.build()
    (region,) = built.call("cut").reads
    return tile_shape(region, built.tensor("a"))


def test_a_slice_inside_for_every_tile_has_a_constant_extent() -> None:
    assert shape(program(128, 32, 4)) == (Const(32),)
    assert shape(program(130, 32, 4)) == (Const(32),)


def test_a_slice_that_may_overhang_is_clipped() -> None:
    (clipped,) = shape(program(128, 48, 3))
    assert str(clipped) == "min(-j*48 + 128, 48)"


def test_an_axis_without_padding_among_padded_ones_is_settled_too() -> None:
    p = et.Program("halo")
    a, b = p.input("a", (3, 128), et.f32), p.output("b", (3, 128), et.f32)
    p.call(copy, name="cut", grid=(3, 4),
           reads=lambda i, j: a.padded((1, 0), (1, 0))[i : i + 1, j * 32 : j * 32 + 32],
           writes=lambda i, j: b[i : i + 1, j * 32 : j * 32 + 32])
    assert shape(p) == (Const(1), Const(32))


def test_a_dim_decides_nothing() -> None:
    n = et.dim("n", max=64)
    p = et.Program("rows")
    a, b = p.input("a", (n, 8), et.f32), p.output("b", (n, 8), et.f32)
    p.call(copy, name="cut", grid=(n.tiles(4),), reads=lambda i: a[i * 4 : i * 4 + 4, :],
           writes=lambda i: b[i * 4 : i * 4 + 4, :])
    assert str(shape(p)[0]) == "min(-i*4 + n, 4)"


def test_bodies_may_reshape_what_lies_inside() -> None:
    assert et.check(program(128, 32, 4, fold)).ok


def test_text_gives_the_same_extents_back() -> None:
    p = program(128, 32, 4)
    read = et.parse(str(p))
    (region,) = read.call("cut").reads
    assert read == p.build() and tile_shape(region, read.tensor("a")) == (Const(32),)
