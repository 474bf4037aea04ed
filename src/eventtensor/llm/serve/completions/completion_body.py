"""The body of a completion request: prompts, and params of each choice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from ....errors import BadParameter
from ...engine.sampling_params import SamplingParams
from ..sampling_fields import SamplingFields
from ..strict_body import Integer, MaxItems, NoEffect, Texts, Tokens

ManyTokens = Annotated[list[Tokens], MaxItems(1 << 10)]


class CompletionBody(SamplingFields):
    prompt: str | Tokens | Texts | ManyTokens
    logprobs: Integer | None = None
    echo: bool | None = None
    add_special_tokens: bool | None = None
    accepted: ClassVar[Mapping[str, NoEffect]] = {
        **SamplingFields.accepted,
        "suffix": NoEffect("no text follows the answer", ("",)),
    }
    refused: ClassVar[Mapping[str, str]] = {
        **SamplingFields.refused,
        "prompt_embeds": "prompts are texts or tokens",
    }

    def choices(self) -> list[SamplingParams]:
        """Params of each choice. OpenAI's default is 16 tokens; an echo may have none."""
        max_tokens = 16 if self.max_tokens is None else self.max_tokens
        counts = [n for n in (self.prompt_logprobs, self.logprobs if self.echo else None,
                             0 if self.echo and max_tokens == 0 else None) if n is not None]
        return self.params(max_tokens=max_tokens, prompt_logprobs=max(counts, default=None))

    @property
    def prompts(self) -> list[str | list[int]]:
        if isinstance(self.prompt, str):
            return [self.prompt]
        if not self.prompt:
            raise BadParameter("prompt is an empty list", hint="a text, tokens, or a list of them")
        if isinstance(self.prompt[0], int):
            return [[t for t in self.prompt if isinstance(t, int)]]
        return [p for p in self.prompt if not isinstance(p, int)]
