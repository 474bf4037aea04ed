"""Log probabilities of prompt tokens in vLLM's format, and their limit per request."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import BadParameter
from ..engine.request import ScoredToken
from ..engine.sampling_params import SamplingParams
from .response_writer import Json
from .token_texts import TokenTexts

# Of one request. An entry takes up to 100 bytes of JSON, and 400 bytes before that.
MAX_ENTRIES = 1 << 18


def check_entries(prompts: Sequence[Sequence[int]], params: Sequence[SamplingParams]) -> None:
    """Each prompt token has an entry for itself and one for each of its likeliest tokens."""
    each = sum(1 + p.prompt_logprobs for p in params if p.prompt_logprobs is not None)
    if (entries := each * sum(map(len, prompts))) > MAX_ENTRIES:
        raise BadParameter(f"the prompts would have {entries} log probabilities",
                           hint=f"at most {MAX_ENTRIES} in one request: ask for fewer of the "
                           "likeliest tokens, or in several requests")


def vllm_logprobs(
    prompt: Sequence[ScoredToken], max_top: int, texts: TokenTexts
) -> list[Json | None]:
    """For each position: the prompt's token first, then the `max_top` likeliest. The first position
    has none, because no token precedes it."""
    found: list[Json | None] = []
    for entry in prompt:
        p = entry.logprobs
        if p is None:
            found.append(None)
            continue
        ranked = [(entry.token, p.chosen, p.rank)]
        ranked += [(t, x, k) for k, (t, x) in enumerate(p.top[:max_top], 1) if t != entry.token]
        found.append({str(t): {"logprob": x, "rank": k, "decoded_token": texts.token_text(t)}
                      for t, x, k in ranked})
    return found
