"""Log probabilities of prompts in vLLM's form, and how many one request may ask for."""

from __future__ import annotations

from collections.abc import Sequence

from ..engine.request import Chosen
from ..engine.sampling_params import SamplingParams
from ..errors import BadParameter
from .response_writer import Json
from .token_texts import TokenTexts

MAX_ENTRIES = 1 << 18  # of one request; each is up to 100 bytes of JSON, and 400 on its way there


def check_entries(prompts: Sequence[Sequence[int]], params: Sequence[SamplingParams]) -> None:
    """Each token of a prompt has an entry, and one for each of the likeliest."""
    each = sum(1 + p.prompt_logprobs for p in params if p.prompt_logprobs is not None)
    if (entries := each * sum(map(len, prompts))) > MAX_ENTRIES:
        raise BadParameter(f"the prompts would have {entries} log probabilities",
                           hint=f"at most {MAX_ENTRIES} in one request: ask for fewer of the "
                           "likeliest tokens, or in several requests")


def vllm_logprobs(prompt: Sequence[Chosen], most: int, texts: TokenTexts) -> list[Json | None]:
    """By token: the one of the prompt first, then the `most` likeliest. The first place has none,
    as nothing is before it."""
    found: list[Json | None] = []
    for entry in prompt:
        p = entry.logprobs
        if p is None:
            found.append(None)
            continue
        ranked = [(entry.token, p.chosen, p.rank)]
        ranked += [(t, x, k) for k, (t, x) in enumerate(p.top[:most], 1) if t != entry.token]
        found.append({str(t): {"logprob": x, "rank": k, "decoded_token": texts.token_text(t)}
                      for t, x, k in ranked})
    return found
