"""Sizes of a launch that no machine counts or holds are errors with names, on every target."""

from __future__ import annotations

import numpy as np
import pytest

import eventtensor as et
from eventtensor.errors import LaunchTooLarge, MisalignedElements, NotAnArray, OutOfMemory
from eventtensor.ir.expr import Const, Dim, product
from eventtensor.ir.tensor import DType, Role, Tensor
from eventtensor.runtime.arguments import bind
from eventtensor.runtime.interface import interface_of
from eventtensor.runtime.overflow_check import Count, OverflowCheck

TARGETS = ("interp", "cpu")


@et.task
def added(x, y):
    y[:] += x


@et.task
def doubled(x, y):
    y[:] = x * 2.0


def squares() -> et.Program:
    """a * b tasks that add up."""
    a, b = et.dim("a", min=0), et.dim("b", min=0)
    p = et.Program("squares")
    x, y = p.input("x", (8,), et.f32), p.state("y", (8,), et.f32)
    p.call(added, name="w", grid=(a, b), reads=lambda i, j: x[:],
           accumulates=lambda i, j: y[:], unordered=True)
    return p


def through_scratch() -> et.Program:
    k = et.dim("k", min=1)
    p = et.Program("through")
    x, y = p.input("x", (8,), et.f32), p.output("y", (8,), et.f32)
    s = p.scratch("s", (k, 8), et.f32)
    p.call(doubled, grid=(1,), reads=lambda i: x[:], writes=lambda i: s[i, :])
    p.call(doubled, grid=(1,), reads=lambda i: s[i, :], writes=lambda i: y[:])
    return p


def line(n: int = 8) -> np.ndarray:
    return np.ones(n, np.float32)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("a, b", [(2**32, 2**32), (2**33, 2**31), (2**62, 4), (3, 2**61)])
def test_more_tasks_than_can_be_counted_are_refused(target: str, a: int, b: int) -> None:
    kernel = et.compile(squares(), target=target)
    y = line()
    with pytest.raises(LaunchTooLarge, match=rf"call 'w' has {a * b} tasks.*a = {a}, b = {b}"):
        kernel(x=line(), y=y, a=a, b=b)
    kernel(x=line(), y=y, a=2, b=3)
    assert (y == 7).all()
    kernel.close()


@pytest.mark.parametrize("target", TARGETS)
def test_dims_and_tensors_beyond_64_bits_are_refused_by_name(target: str) -> None:
    kernel = et.compile(through_scratch(), target=target)
    with pytest.raises(LaunchTooLarge, match="dim 'k' has 36893488147419103232 elements"):
        kernel(x=line(), y=line(), k=2**65)
    with pytest.raises(LaunchTooLarge, match=r"tensor 's' has 9223372036854775808 bytes.*k = "):
        kernel(x=line(), y=line(), k=2**58)
    kernel.close()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("k", [2**45, 2**56])
def test_scratch_that_memory_cannot_hold_is_an_error(target: str, k: int) -> None:
    kernel = et.compile(through_scratch(), target=target)
    with pytest.raises(OutOfMemory, match=rf"(scratch 's'|the workspace) takes \d+ bytes.*k = {k}"):
        kernel(x=line(), y=line(), k=k)
    y = line()
    kernel(x=line(), y=y, k=3)
    assert (y == 4).all()
    kernel.close()


def test_an_artifact_refuses_what_its_kernel_does(tmp_path) -> None:
    kernel = et.compile(squares(), target="cpu")
    kernel.save(tmp_path)
    kernel.close()
    again = et.load(tmp_path)
    with pytest.raises(LaunchTooLarge, match="call 'w' has"):
        again(x=line(), y=line(), a=2**32, b=2**32)
    again.close()


def test_an_extent_that_would_wrap_on_the_way_is_refused() -> None:
    """The quotient is small, but what generated code divides is not."""
    a, b = et.dim("a", min=0), et.dim("b", min=0)
    p = et.Program("wraps")
    x, y = p.input("x", (8,), et.f32), p.state("y", (8,), et.f32)
    p.call(added, name="w", grid=((a * 2**40 + b) // 2**41,), reads=lambda i: x[:],
           accumulates=lambda i: y[:], unordered=True)
    known, given = interface_of(p.build()), {"x": line(), "y": line()}
    with pytest.raises(LaunchTooLarge, match="call 'w'"):
        bind(known, {**given, "a": 2**30, "b": 1})
    assert bind(known, {**given, "a": 2**20, "b": 1})[0] == {"a": 2**20, "b": 1}


def test_a_check_is_made_once_for_each_set_of_dims(monkeypatch) -> None:
    from eventtensor.runtime import overflow_check

    seen: list[str] = []
    check = overflow_check._check_count
    monkeypatch.setattr(
        overflow_check, "_check_count", lambda c, dims: (seen.append(c.what), check(c, dims))
    )
    known = interface_of(squares().build())
    for a in (3, 4, 3, 4, 3):
        known.check_sizes({"a": a, "b": 2})
    assert seen.count("call 'w' has tasks") == 2


def test_an_array_that_is_not_aligned_is_called_so() -> None:
    off = np.ndarray((8,), np.float32, buffer=bytearray(33), offset=1)
    with pytest.raises(MisalignedElements, match=r"'x' begins at .* not aligned to the 4 bytes"):
        bind(interface_of(squares().build()), {"x": off, "y": line(), "a": 1, "b": 1})


def test_a_masked_array_is_refused() -> None:
    masked = np.ma.masked_array(line(), mask=[True] * 8)
    with pytest.raises(NotAnArray, match="'x' is a masked array"):
        bind(interface_of(squares().build()), {"x": masked, "y": line(), "a": 1, "b": 1})


def test_sizes_that_no_dims_can_make_too_large_are_not_looked_at() -> None:
    """A server binds other dims in every other step, so a check of each would cost it."""
    n, m = Dim("n", 1, 1000), Dim("m", 1, None)
    x = Tensor("x", Role.input, (n, n), DType.f32)
    y = Tensor("y", Role.input, (m, Const(8)), DType.f32)
    assert OverflowCheck((n,), (x,), (Count("call 'w' has tasks", product([n, n])),))._counts == ()
    left = OverflowCheck((n, m), (x, y), ())
    assert {c.what for c in left._counts} == {"dim 'm' has elements", "tensor 'y' has bytes"}
    left.check({"n": 3, "m": 2**57})
    with pytest.raises(LaunchTooLarge, match="tensor 'y'"):
        left.check({"n": 3, "m": 2**57 + 1})
