"""The table that a server prints when it starts: what fits into memory."""

from __future__ import annotations

from ..engine.capacity import GB
from ..engine.llm import LLM


def capacity_table(llm: LLM, name: str, port: int) -> str:
    fits, model_len = llm.capacity, llm.model.config.max_position
    share = ("all that the model has" if fits.max_model_len == model_len
             else f"of {model_len:,} of the model")
    rows = {
        "model": f"{name}, {llm.dtype} on {llm.target}",
        "weights": f"{fits.weight_bytes / GB:.3g} GB",
        "cache": f"{fits.cache_bytes / GB:.3g} GB for {fits.cache_tokens:,} tokens",
        "context": f"{fits.max_model_len:,} tokens, {share}",
        "requests": f"{fits.max_num_seqs} run, {fits.num_full_requests} of them with a full "
        f"context; {llm.engine.options.max_waiting} wait",
        "port": str(port),
    }
    return "\n".join(f"{what:10}{value}" for what, value in rows.items())
