"""The body of /tokenizer_info: special tokens and chat template for clients that render prompts
themselves. Names are those of tokenizer_config.json."""

from __future__ import annotations

from ..text.tokenizer import Tokenizer
from .response_writer import Json

_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")


def tokenizer_info(tokenizer: Tokenizer, context: int) -> Json:
    special = {name: tokenizer.special.get(name) for name in _TOKENS}
    if special["eos_token"] is None and tokenizer.eos:
        special["eos_token"] = tokenizer.decode(tokenizer.eos[:1], special=True)
    return {"tokenizer_class": "PreTrainedTokenizerFast", **special,
            "add_bos_token": bool(tokenizer.encode("")), "model_max_length": context,
            "chat_template": tokenizer.template}
