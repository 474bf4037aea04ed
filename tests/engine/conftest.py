"""A tokenizer of bytes, and its grammars."""

from __future__ import annotations

import pytest

from eventtensor.llm.engine.grammar import Grammars
from tests.engine.grammar_texts import EOS, named_tokens


@pytest.fixture(scope="session")
def tokenizer():
    return named_tokens()


@pytest.fixture(scope="session")
def grammars(tokenizer):
    return Grammars(tokenizer, tokenizer.vocab, frozenset({EOS}))
