"""Structured output: before each token the package llguidance says which tokens a grammar allows.

The text of a grammar is made in grammar_source.py. The kernel samples among the allowed tokens."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from time import thread_time
from typing import Any

import numpy as np

from ...errors import BadGrammar, BadPrompt
from ..array_types import Array
from ..optional_packages import need
from ..text.tokenizer import Tokenizer
from .grammar_source import grammar_source
from .sampling_params import SamplingParams

_REASON = "error:"  # begins the line with the cause in errors of regular expressions
_MOST_KEPT = 32  # grammars that were compiled
# Of one grammar: steps before its first token, at 3 us and 160 bytes, states, at 1 to 2 KB, and
# symbols of its rules.
_MOST_BEFORE, _MOST_STATES, _MOST_SYMBOLS = 100_000, 20_000, 20_000
# Of a grammar whose rules are the user's own, for a token: ways to read what there is so far.
_OWN_RULES = {"max_items_in_row": 1000, "step_max_items": 10_000}
# Seconds of the engine's thread, for an answer and for each of its tokens.
_MOST_S, _MOST_TOKEN_S = 0.5, 0.005


class Grammar:
    """The state of one answer in its grammar."""

    def __init__(self, matcher: Any, vocab: int) -> None:
        self._matcher, self._vocab = matcher, vocab
        self._allowed: Array | None = None  # for the token that comes next
        self._s_left = _MOST_S

    @property
    def is_over(self) -> bool:
        """Whether the grammar allows no further token."""
        return bool(self._matcher.is_stopped())

    def copy(self) -> Grammar:
        found = Grammar(self._matcher.deep_copy(), self._vocab)
        found._allowed = self._allowed
        return found

    def allowed(self) -> Array:
        """A bit for each token that may come next, the lowest of a byte first. A grammar without a
        next token, or with too much work for it, is an error of its author."""
        if self._allowed is None:
            began = thread_time()
            bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
            found = bits[: -(-self._vocab // 8)].copy()
            found[-1] &= 0xFF >> -self._vocab % 8
            if self._matcher.is_error() or not found.any():
                raise BadGrammar(f"the grammar has no way on: {_cause(self._matcher)}")
            self._allowed = found
            self._spend(thread_time() - began)
        return self._allowed

    def accept(self, token: int) -> None:
        self._allowed, began = None, thread_time()
        if not self._matcher.consume_token(token):
            raise BadGrammar(f"the grammar refuses token {token}: {_cause(self._matcher)}")
        self._spend(thread_time() - began - _MOST_TOKEN_S)

    def _spend(self, seconds: float) -> None:
        """Bounds the time that other requests wait for this grammar. It counts the running time of
        the thread, so a busy machine does not matter."""
        self._s_left = min(self._s_left - seconds, _MOST_S)
        if self._s_left < 0:
            raise BadGrammar("the grammar takes too long to say which tokens may come",
                             hint="fewer ways to read the same text make it faster")


def _cause(matcher: Any) -> str:
    """Its first line, and the reason that a regular expression has in a later one. Behind them the
    parser tells all of its state."""
    text = str(matcher.get_error()).partition("<state>")[0].strip()
    first, *more = text.split("\n")
    reason = next((line[len(_REASON) :] for line in more if line.startswith(_REASON)), "")
    return f"{first[:200]} {reason.strip()[:100]}".rstrip() or str(matcher.stop_reason())


class Grammars:
    """The compiled grammars of one model, in a cache. Any thread may call it. The first grammar
    takes a second unless `prepare` was called."""

    def __init__(
        self, tokenizer: Tokenizer | None, vocab: int, eos: frozenset[int],
        additional_properties: bool = False,
    ) -> None:
        self._tokenizer, self._vocab, self._eos = tokenizer, vocab, eos
        self._additional = additional_properties
        self._known: OrderedDict[str, Grammar] = OrderedDict()
        self._lock, self._reading = Lock(), Lock()
        self._read: Any = None

    def compile(self, params: SamplingParams) -> Grammar | None:
        """The grammar of the params in its first state, with the allowed first tokens."""
        if not params.has_grammar:
            return None
        text = grammar_source(params, self._additional)
        with self._lock:
            found = self._known.get(text)
        if found is None:  # others go on meanwhile
            found = Grammar(self._compile_text(text, params.grammar is not None), self._vocab)
            found.allowed()
        with self._lock:
            self._known[text] = found
            self._known.move_to_end(text)
            if len(self._known) > _MOST_KEPT:
                self._known.popitem(last=False)
        return found.copy()

    def prepare(self) -> None:
        """Reads the vocabulary, so that no request waits for it: no other thread runs meanwhile."""
        if self._tokenizer is not None:
            _ = self._tokens

    @property
    def _tokens(self) -> Any:
        if self._tokenizer is None:
            raise BadPrompt("a model without a tokenizer cannot keep to a grammar")
        with self._reading:
            if self._read is None:
                self._read = need("llguidance").LLTokenizer(
                    self._tokenizer.definition, n_vocab=self._vocab, eos_token=sorted(self._eos))
        return self._read

    def _compile_text(self, text: str, own_rules: bool) -> Any:
        package = need("llguidance")
        limits = package.LLParserLimits(
            initial_lexer_fuel=_MOST_BEFORE, max_lexer_states=_MOST_STATES,
            max_grammar_size=_MOST_SYMBOLS, **(_OWN_RULES if own_rules else {}))
        matcher = package.LLMatcher(self._tokens, text, log_level=0, limits=limits)
        if matcher.is_error():
            raise BadGrammar(f"the grammar cannot be used: {_cause(matcher)}")
        return matcher
