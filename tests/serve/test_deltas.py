"""What an answer has said, put together from its deltas."""

from __future__ import annotations

from eventtensor.llm.serve.deltas import (
    ArgumentsDelta,
    CallDelta,
    ParsedAnswer,
    ReasoningDelta,
    TextDelta,
)


class NeverAdded(str):
    """A text that nobody may add to another: a long answer would be copied with each piece."""

    def __radd__(self, other):
        raise AssertionError("a piece was added to all that came before")


def test_pieces_are_joined_once():
    pieces = [NeverAdded(text) for text in ("a", "b", "c")]
    answer = ParsedAnswer()
    answer.add([CallDelta(0, "f"), CallDelta(1, "g")])
    for piece in pieces:
        answer.add([TextDelta(piece), ReasoningDelta(piece), ArgumentsDelta(1, piece)])
    assert answer.text == answer.reasoning == answer.calls[1].arguments == "abc"
    assert answer.calls[0].arguments == ""
