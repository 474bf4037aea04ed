"""`kernel.validate`: what a proof rests on, checked on real data, on targets that run here."""

from __future__ import annotations

import numpy as np
import pytest

import eventtensor as et
from eventtensor.errors import BoundViolated, DataRefused, WrongShape
from tests.support.small_moe import routed, small_moe

F, I = et.f32, et.i32  # noqa: E741
TARGETS = ["interp", "cpu"]


@et.task
def copy(x, o):
    o[:] = x


def ints(*values):
    return np.array(values, np.int32)


def refused(kernel, **arrays) -> list[str]:
    before = {k: v.copy() for k, v in arrays.items()}
    with pytest.raises(DataRefused, match="ET317") as caught:
        kernel.validate(**arrays)
    for k, v in arrays.items():
        np.testing.assert_array_equal(v, before[k])
    assert all(line in str(caught.value) for line in caught.value.broken)
    assert all("test_validate.py:" in line for line in caught.value.broken)
    return list(caught.value.broken)


# ---- declared facts ---------------------------------------------------------------------------


def stated() -> et.Program:
    p, n = et.Program("stated"), et.dim("n", max=64)
    at = p.input("at", (n,), I, bound=7, distinct=True)
    ptr = p.input("ptr", (n,), I, bound=9, monotone=True)
    x, z = p.input("x", (8,), F), p.output("z", (n,), F)
    p.fact(lambda i: ptr[i] <= at[i] + 4, over=(n,))
    p.call(copy, name="pick", grid=(n,), reads=lambda i: x[at[i]], writes=lambda i: z[i])
    return p


@pytest.mark.parametrize("target", TARGETS)
def test_all_facts_that_data_breaks_are_told_at_once_with_index_and_values(target):
    kernel = et.compile(stated(), target=target)
    rest = {"x": np.zeros(8, np.float32), "z": np.zeros(4, np.float32)}
    kernel.validate(at=ints(3, 1, 2, 0), ptr=ints(0, 1, 1, 4), **rest)
    bound, distinct, monotone, fact = refused(
        kernel, at=ints(3, 8, 3, 9), ptr=ints(8, 7, 9, 9), **rest)
    assert bound.startswith("at[1] = 8 is outside its bound 0..7 (and 1 more)")
    assert "at is declared distinct over axes [0]" in distinct
    assert "holds 3 twice, at at[0] and at[2]" in distinct
    assert "ptr is declared monotone, but ptr[0] = 8 > ptr[1] = 7" in monotone
    assert "is false at i = 0, where ptr[0] = 8, at[0] = 3 (and 1 more)" in fact
    kernel.close()


@pytest.mark.parametrize("target", TARGETS)
def test_arguments_are_checked_as_for_a_launch(target):
    kernel = et.compile(stated(), target=target)
    with pytest.raises(WrongShape):
        kernel.validate(at=ints(0), ptr=ints(0), x=np.zeros(7, np.float32),
                        z=np.zeros(1, np.float32))
    kernel.close()


def test_a_proved_program_has_nothing_to_validate():
    p = et.Program("p")
    x, o = p.input("x", (8,), F), p.output("o", (8,), F)
    p.call(copy, grid=(8,), reads=lambda i: x[i], writes=lambda i: o[i])
    kernel = et.compile(p, target="interp")
    assert not kernel.report.obligations
    kernel.validate(x=np.zeros(8, np.float32), o=np.zeros(8, np.float32))


# ---- facts of computed data --------------------------------------------------------------------


def computed() -> et.Program:
    @et.task
    def double(x, o):
        o[:] = x * 2

    p = et.Program("computed")
    raw = p.input("raw", (4,), I)
    at = p.scratch("at", (4,), I, bound=7, distinct=True)
    x, z = p.input("x", (8,), F), p.output("z", (4,), F)
    p.call(double, name="make", grid=(), reads=lambda: raw[:], writes=lambda: at[:])
    p.call(copy, name="pick", grid=(4,), reads=lambda i: x[at[i]], writes=lambda i: z[i])
    return p


@pytest.mark.parametrize("target", TARGETS)
def test_facts_of_computed_data_are_checked_by_computing_it(target):
    kernel = et.compile(computed(), target=target)
    rest = {"x": np.zeros(8, np.float32), "z": np.zeros(4, np.float32)}
    kernel.validate(raw=ints(0, 1, 2, 3), **rest)
    wide, twice = refused(kernel, raw=ints(0, 4, 2, 2), **rest)
    assert wide.startswith("at[1] = 8 is outside its bound 0..7") and "holds 4 twice" in twice
    kernel.close()


# ---- counts -------------------------------------------------------------------------------------


def grouped(count) -> et.Program:
    p = et.Program("grouped")
    index = p.input("index", (8,), I, bound=3)
    counts = p.input("counts", (4,), I, bound=8)
    x, s, o = p.input("x", (8,), F), p.scratch("s", (8,), F), p.output("o", (4,), F)
    ready = p.events("ready", (4,), count=lambda e: count(counts[e]))
    p.call(copy, name="give", grid=(8,), reads=lambda i: x[i], writes=lambda i: s[i],
           notifies=lambda i: ready[index[i]])
    p.call(copy, name="take", grid=(4,), reads=lambda e: x[0], writes=lambda e: o[e],
           waits=lambda e: ready[e])
    return p


INDEX = ints(0, 1, 1, 3, 0, 1, 3, 3)
COUNTS = ints(2, 3, 0, 3)


@pytest.mark.parametrize("target", TARGETS)
def test_counts_are_compared_with_the_notifies_of_the_data(target):
    rest = {"x": np.zeros(8, np.float32), "o": np.zeros(4, np.float32)}
    kernel = et.compile(grouped(lambda c: c), target=target)
    kernel.validate(index=INDEX, counts=COUNTS, **rest)
    high, low = refused(kernel, index=INDEX, counts=ints(2, 4, 0, 2), **rest)
    assert "ready[1], which take(1) waits for, has the count 4 but gets 3 notifies" in high
    assert "ready[3]" in low and "count 2 but gets 3" in low
    kernel.close()


@pytest.mark.parametrize("count, wrong", [
    (lambda c: c + 1, ["ready[0]", "ready[1]", "ready[2]", "ready[3]"]),
    (lambda c: et.min(c, 2), ["ready[1]", "ready[3]"]),
])
def test_a_count_that_is_wrong_for_the_data_is_refused_before_it_hangs(count, wrong):
    kernel = et.compile(grouped(count), target="cpu")
    broken = refused(kernel, index=INDEX, counts=COUNTS, x=np.zeros(8, np.float32),
                     o=np.zeros(4, np.float32))
    assert [b.split(",")[0] for b in broken] == wrong
    kernel.close()


# ---- reads, slices and bodies --------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
def test_reads_of_what_data_did_not_write_are_found(target):
    p = et.Program("p")
    index = p.input("index", (8,), I, bound=7, distinct=True)
    only = p.input("only", (1,), I, bound=8)
    x, s, o = p.input("x", (8,), F), p.scratch("s", (8,), F), p.output("o", (8,), F)
    p.call(copy, grid=(lambda: only[0],), reads=lambda i: x[i], writes=lambda i: s[index[i]])
    p.call(copy, name="r", grid=(8,), reads=lambda i: s[i], writes=lambda i: o[i])
    kernel = et.compile(p, target=target)
    rest = {"index": np.arange(8, dtype=np.int32)[::-1].copy(), "x": np.zeros(8, np.float32),
            "o": np.zeros(8, np.float32)}
    kernel.validate(only=ints(8), **rest)
    broken = refused(kernel, only=ints(6), **rest)
    assert [b.split(" (at")[0] for b in broken] == [
        "r(0) reads s[0], which nothing has written", "r(1) reads s[1], which nothing has written"]
    kernel.close()


def test_indices_that_a_body_gathers_by_are_checked_by_running_it():
    @et.task
    def pick(x, t, o):
        o[:] = x[t]

    p = et.Program("p")
    x, t, o = p.input("x", (8,), F), p.input("t", (4,), I), p.output("o", (4,), F)
    p.call(pick, name="gather", grid=(4,), reads=lambda i: (x[:], t[i]), writes=lambda i: o[i])
    kernel = et.compile(p, target="interp")
    assert kernel.report.status == "conditional"
    rest = {"x": np.zeros(8, np.float32), "o": np.zeros(4, np.float32)}
    kernel.validate(t=ints(0, 7, 1, 2), **rest)
    (found,) = refused(kernel, t=ints(0, 7, 9, 2), **rest)
    assert "gather(2)" in found and "9" in found


@et.task
def pick(x, o):
    o[...] = x


def overwritten(use) -> et.Program:
    """`at` is made, used by `use`, and made again: at the end it is always as declared."""
    p = et.Program("overwritten")
    raw, at = p.input("raw", (2, 2), I), p.scratch("at", (2,), I, bound=(0, 3))
    p.call(copy, name="make", grid=(), reads=lambda: raw[0, :], writes=lambda: at[:])
    use(p, p.input("x", (4,), F), p.output("o", (4,), F, partial=True), at)
    p.call(copy, name="again", grid=(), reads=lambda: raw[1, :], writes=lambda: at[:])
    return p


def reads_by(p, x, o, at):
    p.call(pick, name="use", grid=(2,), reads=lambda i: x[at[i]], writes=lambda i: o[i])


def writes_by(p, x, o, at):
    p.call(pick, name="use", grid=(), reads=lambda: x[0], writes=lambda: o[at[0]])


def waits_by(p, x, o, at):
    s, e = p.scratch("s", (4,), F), p.events("e", (4,), count=1)
    p.call(pick, name="first", grid=(4,), reads=lambda i: x[i], writes=lambda i: s[i],
           notifies=lambda i: e[i])
    p.call(pick, name="use", grid=(2,), reads=lambda i: s[at[i]], writes=lambda i: o[i])


@pytest.mark.parametrize("use", [reads_by, writes_by, waits_by])
def test_made_data_must_be_as_declared_when_it_is_loaded(use):
    kernel = et.compile(overwritten(use), target="interp")
    rest = {"x": np.zeros(4, np.float32), "o": np.zeros(4, np.float32)}
    kernel.validate(raw=np.array([[3, 0], [1, 2]], np.int32), **rest)
    (found,) = refused(kernel, raw=np.array([[4, 0], [1, 2]], np.int32), **rest)
    assert found.startswith("at[0] = 4 is outside its bound 0..3")


# ---- debug builds --------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("values, text", [
    (ints(3, 1, 2, 8), "at[3] = 8 is outside its bound 0..7"),
    (ints(3, 1, 2, 3), "holds 3 twice, at at[0] and at[3]"),
])
def test_a_debug_build_says_the_same_on_every_target(target, values, text):
    """Also of data that no task loads."""
    p = et.Program("p")
    p.input("at", (4,), I, bound=7, distinct=True)
    x, o = p.input("x", (8,), F), p.output("o", (8,), F)
    p.call(copy, grid=(8,), reads=lambda i: x[i], writes=lambda i: o[i])
    kernel = et.compile(p, target=target, debug=True)
    arrays = {"x": np.zeros(8, np.float32), "o": np.zeros(8, np.float32)}
    kernel(at=ints(3, 1, 2, 0), **arrays)
    with pytest.raises(et.errors.EventTensorError) as caught:
        kernel(at=values, **arrays)
    assert text in str(caught.value) and caught.value.place.startswith("test_validate.py:")
    assert any(text in line for line in refused(kernel, at=values, **arrays))
    kernel.close()


@pytest.mark.parametrize("target", TARGETS)
def test_a_debug_build_checks_states_before_the_launch_writes_them(target):
    p = et.Program("p")
    at = p.state("at", (4,), I, bound=7)
    x, o = p.input("x", (4,), I), p.output("o", (4,), I)
    p.call(copy, name="save", grid=(4,), reads=lambda i: at[i], writes=lambda i: o[i])
    p.call(copy, name="next", grid=(4,), reads=lambda i: x[i], writes=lambda i: at[i])
    kernel = et.compile(p, target=target, debug=True)
    rest = {"x": ints(1, 2, 3, 4), "o": ints(0, 0, 0, 0)}
    kernel(at=ints(0, 7, 1, 2), **rest)
    with pytest.raises(BoundViolated, match=r"at\[1\] = 8"):
        kernel(at=ints(0, 8, 1, 2), **rest)
    with pytest.raises(BoundViolated, match=r"at\[3\] = 9"):
        kernel(at=ints(0, 7, 1, 2), x=ints(1, 2, 3, 9), o=rest["o"])
    kernel.close()


# ---- a whole program ------------------------------------------------------------------------


@pytest.mark.parametrize("more", [0, 1])
def test_the_routing_of_experts_is_computed_and_compared_with_the_counts(more):
    text = str(small_moe())
    wrong = text.replace("count counts[c0]", f"count counts[c0] + {more}") if more else text
    assert (wrong != text) == bool(more)
    kernel = et.compile(et.parse(wrong), target="interp")
    assert kernel.report.status == "conditional"
    for n in (1, 4, 9):
        arrays = routed(kernel.program, n, n)
        if not more:
            kernel.validate(**arrays)
            continue
        with pytest.raises(DataRefused) as caught:
            kernel.validate(**arrays)
        assert all(line.startswith("ready[") for line in caught.value.broken)
