"""The text of an answer, token by token, up to the first stop.

Bytes become text in the tokenizer's stream; the detokenizer finds the stops. It holds back text
that may become one, so no part of a stop is ever in an output."""

from __future__ import annotations

from collections.abc import Sequence

from ..text.tokenizer import Tokenizer


class Detokenizer:
    """Without a tokenizer there is no text. A stop that is complete within the first `min_tokens`
    tokens does not count. `matched_stop` is the stop that ended the text."""

    def __init__(
        self, tokenizer: Tokenizer | None, stops: Sequence[str] = (), min_tokens: int = 0,
        has_special_tokens: bool = False,
    ) -> None:
        """With `has_special_tokens` the text has the special tokens too."""
        self._stream = None
        if tokenizer is not None:
            self._stream = tokenizer.stream(special=has_special_tokens)
        self._stops, self._num_unstoppable = tuple(stops), min_tokens
        self._pending = ""  # may be the begin of a stop
        self.matched_stop: str | None = None

    @property
    def is_stopped(self) -> bool:
        return self.matched_stop is not None

    def push(self, token: int) -> str:
        """The new text of a token, as far as it can be no part of a stop."""
        if self._stream is None:
            return ""
        text = self._release(self._stream.push(token), may_stop=self._num_unstoppable == 0)
        self._num_unstoppable = max(0, self._num_unstoppable - 1)
        return text

    def finish(self, *, is_cut: bool = False) -> str:
        """The rest of the text, when no token follows. An answer that `is_cut` ends with a whole
        character."""
        if self._stream is None or self.is_stopped:
            return ""
        rest = self._stream.end(cut=is_cut)
        text = self._release(rest, may_stop=self._num_unstoppable == 0)
        text, self._pending = text + self._pending, ""
        return text

    def _release(self, new: str, may_stop: bool) -> str:
        if not self._stops:
            return new
        if self.is_stopped:
            return ""
        text = self._pending + new
        found = [(at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found and may_stop:
            at, self.matched_stop = min(found, key=lambda f: f[0])
            self._pending = ""
            return text[:at]
        num_pending = max((overlap(text, stop) for stop in self._stops), default=0)
        self._pending = text[len(text) - num_pending :]
        return text[: len(text) - num_pending]


def overlap(text: str, stop: str) -> int:
    """The number of characters at the end of the text that are a begin of the stop."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
