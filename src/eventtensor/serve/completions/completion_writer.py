"""Completions, whole or in chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ...engine.request import Chosen, Finish
from ..deltas import TextDelta
from ..openai_writer import OpenAIWriter
from ..response_writer import AnswerDelta, Json, WholeAnswer


@dataclass
class CompletionWriter(OpenAIWriter):
    """`lengths`: of the text of each answer so far, where log probabilities say it."""

    lengths: dict[int, int] = field(default_factory=dict)
    prefix, kind, chunk_kind = "cmpl", "text_completion", "text_completion"

    def choice(self, index: int, answer: WholeAnswer) -> Json:
        return self._choice(index, answer.parsed.text, answer.tokens, answer.finish)

    def pieces(self, new: AnswerDelta) -> Iterator[Json]:
        text = "".join(d.text for d in new.deltas if isinstance(d, TextDelta))
        if text or new.tokens or new.finish is not None:
            yield self._choice(new.index, text, new.tokens, new.finish)

    def _choice(
        self, index: int, text: str, tokens: Sequence[Chosen], finish: Finish | None
    ) -> Json:
        ids: Json = {}
        if self.texts.tokenizer is None:
            ids["token_ids"] = [t.token for t in tokens]
        return {"index": index, "text": text, "logprobs": self._logprobs(index, tokens),
                "finish_reason": finish, **ids}

    def _logprobs(self, index: int, tokens: Sequence[Chosen]) -> Json | None:
        text_of = self.texts.text_of
        known = [(text_of(t.token), t.logprobs) for t in tokens if t.logprobs is not None]
        if not known:
            return None
        offsets = []
        for text, _ in known:
            offsets.append(self.lengths.get(index, 0))
            self.lengths[index] = offsets[-1] + len(text)
        return {"tokens": [t for t, _ in known], "token_logprobs": [p.chosen for _, p in known],
                "top_logprobs": [{text_of(t): x for t, x in p.top} for _, p in known],
                "text_offset": offsets}
