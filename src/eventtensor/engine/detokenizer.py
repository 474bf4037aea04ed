"""The text of an answer as its tokens come, up to where a stop begins."""

from __future__ import annotations

from collections.abc import Sequence

from ..models.text.tokenizer import Tokenizer


class Transcript:
    """Without a tokenizer there is no text. A stop that is complete with the first `min_tokens`
    tokens does not end it; `stop` is the one that has ended it."""

    def __init__(
        self, tokenizer: Tokenizer | None, stops: Sequence[str] = (), min_tokens: int = 0,
        special: bool = False,
    ) -> None:
        """`special`: the text has the special tokens too."""
        self._stream = tokenizer.stream(special=special) if tokenizer is not None else None
        self._stops, self._min_left = tuple(stops), min_tokens
        self._held = ""  # what may be the begin of a stop
        self.stop: str | None = None

    @property
    def stopped(self) -> bool:
        return self.stop is not None

    def push(self, token: int) -> str:
        """What is new, and surely no part of a stop."""
        if self._stream is None:
            return ""
        text = self._release(self._stream.push(token), may_stop=self._min_left == 0)
        self._min_left = max(0, self._min_left - 1)
        return text

    def end(self, *, cut: bool = False) -> str:
        """What is left when no token will come. An answer that is `cut` ends with a character."""
        if self._stream is None or self.stopped:
            return ""
        text = self._release(self._stream.end(cut=cut), may_stop=self._min_left == 0)
        text, self._held = text + self._held, ""
        return text

    def _release(self, new: str, may_stop: bool) -> str:
        if self.stopped:
            return ""
        text = self._held + new
        found = [(at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found and may_stop:
            at, self.stop = min(found, key=lambda f: f[0])
            self._held = ""
            return text[:at]
        keep = max((overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def overlap(text: str, stop: str) -> int:
    """How much of the end of the text is a begin of the stop."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
