"""Text of answers: stops end it where they begin, and what may become one is held back."""

from __future__ import annotations

import pytest

from eventtensor.llm.engine.detokenizer import Detokenizer


class Letters:
    """A tokenizer of one character a token."""

    def stream(self, *, special):
        return self

    def push(self, token):
        return chr(token)

    def end(self, *, cut=False):
        return ""


def spoken(text, stops):
    t, parts = Detokenizer(Letters(), stops), []
    for c in text:
        parts.append(t.push(ord(c)))
        if t.is_stopped:
            break
    return [*parts, t.finish()], t.is_stopped


@pytest.mark.parametrize(("text", "stops", "wanted", "stopped"), [
    ("hello", (), "hello", False),
    ("hello", ("l",), "he", True),
    ("hello", ("lo",), "hel", True),
    ("hello", ("lx", "ox"), "hello", False),
    ("aab", ("ab",), "a", True),
    ("aaab", ("aab",), "a", True),
    ("stop", ("stop",), "", True),
    ("sto", ("stop",), "sto", False),
    ("xabcy", ("bc", "abc"), "x", True),
])
def test_an_answer_ends_where_a_stop_begins(text, stops, wanted, stopped):
    parts, ended = spoken(text, stops)
    assert ("".join(parts), ended) == (wanted, stopped)


@pytest.mark.parametrize(("text", "stops", "wanted"), [
    ("one two", ("two", "one"), "one"),  # the first in the text
    ("abc", ("ab", "abc"), "ab"),
    ("abc", ("abc", "bc"), "abc"),
    ("one", ("two",), None),
])
def test_a_detokenizer_knows_which_stop_has_ended_it(text, stops, wanted):
    t = Detokenizer(Letters(), stops)
    for letter in text:
        t.push(ord(letter))
        if t.is_stopped:
            break
    assert t.matched_stop == wanted


def test_what_may_become_a_stop_is_held_back_and_nothing_else():
    parts, _ = spoken("a<b<en", ("<end>",))
    assert parts == ["a", "", "<b", "", "", "", "<en"]


def test_without_a_tokenizer_there_is_no_text():
    t = Detokenizer(None, ("x",))
    assert (t.push(5), t.finish(), t.is_stopped) == ("", "", False)
