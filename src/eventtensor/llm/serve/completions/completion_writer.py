"""Writes completions, whole or as chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from ...engine.request import ScoredToken
from ..deltas import TextDelta
from ..openai_writer import OpenAIWriter
from ..prompt_logprobs import vllm_logprobs
from ..response_writer import AnswerDelta, Json, WholeAnswer
from .completion_logprobs import CompletionLogprobs

_PROMPT_TOKENS_PER_CHUNK = 64  # with their log probabilities


@dataclass
class CompletionWriter(OpenAIWriter):
    """`echo_texts` are the prompts, one per answer, if answers repeat them. `logprobs` is the
    number of likeliest tokens per position, or None."""

    echo_texts: Sequence[str] = ()
    logprobs: int | None = None
    started: set[int] = field(default_factory=set)  # answers that have had a chunk
    prefix, kind, chunk_kind = "cmpl", "text_completion", "text_completion"

    def __post_init__(self) -> None:
        self._lists = CompletionLogprobs(self.texts, self.logprobs)

    def choice(self, index: int, answer: WholeAnswer) -> Json:
        prompt = self.echo_texts[index] if self.echo_texts else ""
        tokens = _logprob_tokens(answer)
        if self.echo_texts:
            tokens = [*answer.prompt, *tokens]
        extra: Json = {}
        if self.prompt_logprobs is not None:
            extra["prompt_logprobs"] = vllm_logprobs(
                answer.prompt, self.prompt_logprobs, self.texts)
        return self._choice(index, prompt + answer.parsed.text, tokens, answer) | extra

    def text_frame(self, answer: int) -> tuple[str, str] | None:
        if self.texts.tokenizer is None or (self.echo_texts and answer not in self.started):
            return None
        return f'{{"index":{answer},"text":', ',"logprobs":null,"finish_reason":null}'

    def pieces(self, new: AnswerDelta) -> Iterator[Json]:
        """The prompt comes first. Its log probabilities may be many, so they get their own
        chunks."""
        text = "".join(d.text for d in new.deltas if isinstance(d, TextDelta))
        if self.echo_texts and new.index not in self.started:
            self.started.add(new.index)
            echo = self.echo_texts[new.index]
            rest = iter(new.prompt if self.logprobs is not None else ())
            while some := list(islice(rest, _PROMPT_TOKENS_PER_CHUNK)):
                yield self._choice(new.index, echo, some, None)
                echo = ""
            text = echo + text
        tokens = _logprob_tokens(new)
        if text or tokens or new.finish is not None:
            yield self._choice(new.index, text, tokens, new)

    def _choice(
        self, index: int, text: str, tokens: Sequence[ScoredToken],
        answer: WholeAnswer | AnswerDelta | None,
    ) -> Json:
        ids: Json = {}
        if self.texts.tokenizer is None:
            ids["token_ids"] = [t.token for t in (() if answer is None else answer.tokens)]
        return {"index": index, "text": text, "logprobs": self._lists.entries(index, tokens),
                "finish_reason": None if answer is None else answer.finish, **ids}


def _logprob_tokens(answer: WholeAnswer | AnswerDelta) -> list[ScoredToken]:
    """The tokens of log probability lists. The token that ended the answer is the last."""
    return [*answer.tokens, *(() if answer.end is None else (answer.end,))]
