"""Completions, whole or in chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from ...engine.request import Chosen
from ..deltas import TextDelta
from ..openai_writer import OpenAIWriter
from ..prompt_logprobs import vllm_logprobs
from ..response_writer import AnswerDelta, Json, WholeAnswer
from .completion_logprobs import CompletionLogprobs

_PIECE = 64  # tokens of a prompt that one chunk has with their log probabilities


@dataclass
class CompletionWriter(OpenAIWriter):
    """`echoed`: the texts of prompts that answers begin with, by answer, if they do. `logprobs`:
    how many of the likeliest tokens each token has with it, if it has some."""

    echoed: Sequence[str] = ()
    logprobs: int | None = None
    begun: set[int] = field(default_factory=set)  # answers that have a chunk
    prefix, kind, chunk_kind = "cmpl", "text_completion", "text_completion"

    def __post_init__(self) -> None:
        self._lists = CompletionLogprobs(self.texts, self.logprobs)

    def choice(self, index: int, answer: WholeAnswer) -> Json:
        prompt = self.echoed[index] if self.echoed else ""
        tokens = [*(answer.prompt if self.echoed else ()), *_listed(answer)]
        more: Json = {}
        if self.prompt_logprobs is not None:
            more["prompt_logprobs"] = vllm_logprobs(answer.prompt, self.prompt_logprobs, self.texts)
        return self._choice(index, prompt + answer.parsed.text, tokens, answer) | more

    def text_frame(self, answer: int) -> tuple[str, str] | None:
        if self.texts.tokenizer is None or (self.echoed and answer not in self.begun):
            return None
        return f'{{"index":{answer},"text":', ',"logprobs":null,"finish_reason":null}'

    def pieces(self, new: AnswerDelta) -> Iterator[Json]:
        """The prompt comes before all else. Its log probabilities may be many: they are in chunks
        of their own."""
        text = "".join(d.text for d in new.deltas if isinstance(d, TextDelta))
        if self.echoed and new.index not in self.begun:
            self.begun.add(new.index)
            echoed = self.echoed[new.index]
            rest = iter(new.prompt if self.logprobs is not None else ())
            while some := list(islice(rest, _PIECE)):
                yield self._choice(new.index, echoed, some, None)
                echoed = ""
            text = echoed + text
        tokens = _listed(new)
        if text or tokens or new.finish is not None:
            yield self._choice(new.index, text, tokens, new)

    def _choice(
        self, index: int, text: str, tokens: Sequence[Chosen],
        answer: WholeAnswer | AnswerDelta | None,
    ) -> Json:
        ids: Json = {}
        if self.texts.tokenizer is None:
            ids["token_ids"] = [t.token for t in (() if answer is None else answer.tokens)]
        return {"index": index, "text": text, "logprobs": self._lists.entries(index, tokens),
                "finish_reason": None if answer is None else answer.finish, **ids}


def _listed(answer: WholeAnswer | AnswerDelta) -> list[Chosen]:
    """The tokens of lists of log probabilities: the one that ended the answer is the last."""
    return [*answer.tokens, *(() if answer.end is None else (answer.end,))]
