"""Answers that keep to a JSON schema or a regular expression, by the package llguidance: it says
before each token which ones may come."""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np

from ..errors import BadGrammar, BadPrompt, StepFailed
from ..models.checkpoint import Array
from ..models.packages import need
from ..models.text.tokenizer import Tokenizer
from .params import SamplingParams

_MOST_KEPT = 64  # grammars that were compiled
# Between the parts of a JSON text. A model must not go on with blanks for ever.
_BLANKS = r"[\x20\n\t]{0,16}"


class Grammar:
    """Where one answer is in its grammar."""

    def __init__(self, matcher: Any, vocab: int) -> None:
        self._matcher, self._vocab = matcher, vocab
        self._allowed: Array | None = None  # for the token that comes next

    @property
    def over(self) -> bool:
        """Nothing may come any more."""
        return bool(self._matcher.is_stopped())

    def allowed(self) -> Array:
        """A bit for each token that may come, the lowest of a byte first."""
        if self._allowed is None:
            bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
            found = bits[: -(-self._vocab // 8)].copy()
            found[-1] &= 0xFF >> -self._vocab % 8
            if self._matcher.is_error() or not found.any():
                raise StepFailed(f"the grammar has no way on. {self._matcher.get_error()}")
            self._allowed = found
        return self._allowed

    def accept(self, token: int) -> None:
        self._allowed = None
        if not self._matcher.consume_token(token):
            raise StepFailed(f"the grammar refuses token {token}: {self._matcher.get_error()}")


class Grammars:
    """Of one model; what was compiled once is kept. For any thread."""

    def __init__(self, tokenizer: Tokenizer | None, vocab: int, eos: frozenset[int]) -> None:
        self._tokenizer, self._vocab, self._eos = tokenizer, vocab, eos
        self._known: OrderedDict[str, Any] = OrderedDict()
        self._lock = Lock()

    def of(self, params: SamplingParams) -> Grammar | None:
        if params.json_schema is None and params.regex is None:
            return None
        with self._lock:
            text = self._text(params)
            if text not in self._known:
                self._known[text] = self._compiled(text)
            self._known.move_to_end(text)
            if len(self._known) > _MOST_KEPT:
                self._known.popitem(last=False)
            return Grammar(self._known[text].deep_copy(), self._vocab)

    @cached_property
    def _tokens(self) -> Any:
        if self._tokenizer is None:
            raise BadPrompt("a model without a tokenizer cannot keep to a grammar")
        return need("llguidance").LLTokenizer(
            self._tokenizer.definition, n_vocab=self._vocab, eos_token=sorted(self._eos))

    def _text(self, params: SamplingParams) -> str:
        make = need("llguidance").LLMatcher
        try:
            if params.regex is not None:
                return str(make.grammar_from_regex(params.regex))
            return str(make.grammar_from_json_schema(
                params.json_schema, overrides={"whitespace_pattern": _BLANKS}))
        except ValueError as e:
            raise BadGrammar(f"the grammar cannot be read: {e}") from e

    def _compiled(self, text: str) -> Any:
        matcher = need("llguidance").LLMatcher(self._tokens, text)
        if matcher.is_error():
            raise BadGrammar(f"the grammar cannot be used: {matcher.get_error()}")
        return matcher
