"""Texts held against grammars, by a tokenizer of bytes with tokens that have names."""

from __future__ import annotations

import numpy as np
import tokenizers

from eventtensor import SamplingParams
from eventtensor.llm.engine.grammar import Grammar, Grammars
from eventtensor.llm.text.tokenizer import Tokenizer
from tests.engine.tiny_chat import _tokenizer

EOS = 1
CALL, CALL_END, TAG = "<tool_call>", "</tool_call>", "<|python_tag|>"


def named_tokens() -> Tokenizer:
    """Like those of Qwen, which are no special ones, and of Llama, which are."""
    core = _tokenizer()
    core.add_special_tokens([TAG])
    core.add_tokens([tokenizers.AddedToken(t, special=False, normalized=False)
                     for t in (CALL, CALL_END)])
    return Tokenizer(core, eos=(EOS,), special={}, template=None)


def allowed(grammar: Grammar, vocab: int = 259) -> set[int]:
    bits = np.unpackbits(grammar.allowed(), count=vocab, bitorder="little")
    return {int(k) for k in np.flatnonzero(bits)}


def passes(grammars: Grammars, tokenizer: Tokenizer, text: str, **params: object) -> bool:
    """Whether the answer may be this text, and end there."""
    grammar = grammars.compile(SamplingParams(**params))
    assert grammar is not None
    for token in tokenizer.encode(text):
        if grammar.is_over or token not in allowed(grammar):
            return False
        grammar.accept(token)
    return grammar.is_over or EOS in allowed(grammar)
