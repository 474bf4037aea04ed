"""Bad program text is ET011 and names its line, never a Python error."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eventtensor as et
from eventtensor import errors

GOOD = """program p
dim n in 1..64
input a : i32[n, 4]; bound 0 .. n
output b : f32[n, 4]
event E[n]; count 4
fact (a[e, 0] <= 3); e < n
loop l < 4
  call t : t
    grid i < n
    read a[i, 0:4]
    write b[i, 0:4]
    wait E[i]
    body
      arg x: read i32[4] from i32
      arg out: write f32[4] from f32
      equal 4; n
      %0 = arg(x) : i32[4]
      %1 = cast(%0, f32) : f32[4]
      for %2 < 4
        carry %3 = %1; next %4; out %5 : f32[4]
        %4 = add(%3, %1) : f32[4]
      store out[0:4] = %5
    cpp body
      | code
"""


def test_the_base_text_is_good():
    assert str(et.parse(GOOD)) == GOOD


@pytest.mark.parametrize(("old", "new", "line"), [
    ("program p", "progam p", 1),
    ("program p", "program a b", 1),
    ("dim n in 1..64", "dim n in one..64", 2),
    ("dim n in 1..64", "dim n = 4", 2),
    ("dim n in 1..64", "dim n in 1..64\ndim n in 1..64", 3),
    ("dim n", "dimension n", 2),
    ("input a : i32[n, 4]", "input a : i33[n, 4]", 3),
    ("input a : i32[n, 4]", "input a : i32(n, 4)", 3),
    ("input a : i32[n, 4]", "input a", 3),
    ("input a : i32[n, 4]", "input a : i32[n +, 4]", 3),
    ("bound 0 .. n", "bound 0", 3),
    ("bound 0 .. n", "distinct 7", 3),
    ("bound 0 .. n", "limit 0 .. n", 3),
    ("output b", "output a", 4),
    ("output b", "output for", 4),
    ("event E[n]", "event E n", 5),
    ("event E[n]", "event E[n", 5),
    ("count 4", "counts 4", 5),
    ("e < n", "e in n", 6),
    ("a[e, 0] <= 3", "a[e, 0] != 3", 6),
    ("a[e, 0] <= 3", "f(a[e, 0]) <= 3", 6),
    ("a[e, 0] <= 3", "a[e, 0] / 2 <= 3", 6),
    ("a[e, 0] <= 3", "a[e, 0] // n <= 3", 6),
    ("a[e, 0] <= 3", "'x' <= 3", 6),
    ("loop l < 4", "loop l", 7),
    ("loop l < 4", "loop n < 4", 7),
    ("  call t : t", "  cull t : t", 8),
    ("  call t : t", "  call t", 8),
    ("  call t : t", "  call t : t; fast", 8),
    ("    grid i < n", "    grid i", 9),
    ("    grid i < n", "    grad i < n", 9),
    ("    grid i < n", "    grid i < n\n        grid j < n", 9),
    ("    grid i < n", "    grid i < n\n   grid j < n", 10),
    ("read a[i, 0:4]", "read c[i, 0:4]", 10),
    ("read a[i, 0:4]", "read a[i]", 10),
    ("read a[i, 0:4]", "read a[i, 0:]", 10),
    ("read a[i, 0:4]", "read a", 10),
    ("read a[i, 0:4]", "read a.padded(1, 1, 0.0)[i, 0:4]", 10),
    ("read a[i, 0:4]", "read a.padded([1, 1.5], [1, 1], 0.0)[i, 0:4]", 10),
    ("read a[i, 0:4]", "read a.padded([1, 1], [1, 1], x)[i, 0:4]", 10),
    ("read a[i, 0:4]", "read a.padded([1, None], [1, 1], 0.0)[i, 0:4]", 10),
    ("wait E[i]", "wait a[i, 0]", 12),
    ("    body", "    bady", 13),
    ("arg x: read i32[4] from i32", "arg x: take i32[4] from i32", 14),
    ("arg out: write", "arg x: write", 15),
    ("equal 4; n", "equal 4", 16),
    ("arg(x)", "arg(y)", 17),
    ("%0 = arg(x) : i32[4]", "%0 = arg(x)", 17),
    ("%0 = arg(x) : i32[4]", "zero = arg(x) : i32[4]", 17),
    ("cast(%0, f32)", "cast(%7, f32)", 18),
    ("cast(%0, f32)", "cast(%0, f33)", 18),
    ("cast(%0, f32)", "cost(%0)", 18),
    ("cast(%0, f32)", "exp(%0, %0)", 18),
    ("cast(%0, f32)", "add(%0)", 18),
    ("cast(%0, f32)", "sum(%0)", 18),
    ("cast(%0, f32)", "sum(%0, axis=x)", 18),
    ("cast(%0, f32)", "topk_values(%0)", 18),
    ("cast(%0, f32)", "transpose(%0, perm=0)", 18),
    ("cast(%0, f32)", "sorted(%0, axis=0)", 18),
    ("cast(%0, f32)", "literal(x)", 18),
    ("cast(%0, f32)", "cast(%0, f32, k=1)", 18),
    ("cast(%0, f32)", "exp(%0, k=1)", 18),
    ("cast(%0, f32)", "concat(axis=0)", 18),
    ("cast(%0, f32)", "where(%0, %0)", 18),
    ("cast(%0, f32)", "transpose(perm=[0])", 18),
    ("cast(%0, f32)", "broadcast(%0, %0)", 18),
    ("cast(%0, f32)", "slice(%0[rows(k, 4, k)])", 18),
    ("cast(%0, f32)", "%0 + %0", 18),
    ("%1 = cast", "%0 = cast", 18),
    ("for %2 < 4", "for %2", 19),
    ("for %2 < 4", "for %1 < 4", 19),
    ("carry %3 = %1; next %4", "carry %3 = %1; then %4", 20),
    ("next %4", "next %9", 20),
    ("add(%3, %1)", "add(%5, %1)", 21),
    ("store out[0:4] = %5", "store out = %5", 22),
    ("store out[0:4] = %5", "store in_[0:4] = %5", 22),
    ("store out[0:4] = %5", "store out[0:4] = 5", 22),
    ("store out[0:4] = %5", "accumulate out += %9", 22),
    ("      | code", "      code", 24),
])
def test_bad_text_names_its_line(old: str, new: str, line: int):
    assert old in GOOD
    with pytest.raises(errors.BadText) as caught:
        et.parse(GOOD.replace(old, new, 1))
    assert caught.value.message.startswith(f"line {line}: ")
    assert caught.value.place == f"<text>:{line}"


def test_a_call_needs_a_body_and_its_own_name():
    body = GOOD[GOOD.index("    body") :]
    with pytest.raises(errors.BadText, match="no body"):
        et.parse(GOOD.replace(body, ""))
    call = GOOD[GOOD.index("  call") :]
    with pytest.raises(errors.BadText, match="two calls"):
        et.parse(GOOD + call)


def test_empty_text_is_refused():
    with pytest.raises(errors.BadText):
        et.parse("")


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(GOOD)), st.integers(0, 6), st.text("%[](){}:;,=<.+*-/ \n|x0", max_size=3))
def test_damaged_text_is_read_or_refused_with_et011(at: int, cut: int, put: str):
    try:
        et.parse(GOOD[:at] + put + GOOD[at + cut :])
    except errors.BadText as error:
        assert error.message.startswith("line ")
