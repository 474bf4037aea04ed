"""Old names of arguments and options: they work, and who uses one learns the new one."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import eventtensor as et
from eventtensor.llm.cli.option_aliases import replace_old_options
from eventtensor.llm.engine.argument_aliases import accept_old_names


@accept_old_names(before="after")
def called(first: int, *, after: int = 0, other: int = 0) -> tuple[int, int, int]:
    return first, after, other


def call(**given: Any) -> tuple[int, int, int]:
    return called(1, **given)


def test_an_old_argument_works_and_the_warning_names_the_new_one():
    with pytest.warns(DeprecationWarning, match="before is called after now"):
        assert call(before=2, other=3) == (1, 2, 3)


def test_a_new_argument_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert call(after=2) == (1, 2, 0)


def test_an_argument_has_one_of_its_names():
    with pytest.raises(TypeError, match="before and after are both given"):
        call(before=2, after=2)
    with pytest.raises(TypeError, match="unknown"):
        call(unknown=2)


def test_an_argument_that_is_gone_is_ignored_with_a_warning():
    p = et.Program("empty")
    with pytest.warns(DeprecationWarning, match="prefetch has no effect any more"):
        kernel = et.compile(p, target="interp", prefetch=1 << 16)
    kernel()
    with pytest.raises(TypeError, match="unknown"):
        et.compile(p, target="interp", unknown=2)


def test_an_old_option_becomes_the_new_one_and_a_note_says_so(capsys):
    words = ["generate", "m", "--same-bits", "--prompt", "x", "--", "--same-bits"]
    assert replace_old_options(words) == \
        ["generate", "m", "--batch-invariant", "--prompt", "x", "--", "--same-bits"]
    said = capsys.readouterr()
    assert said.err == "eventtensor: --same-bits is called --batch-invariant now\n"
    assert said.out == ""
