"""Answers that keep to a JSON schema or a regular expression, by the package llguidance: it says
before each token which ones may come."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator
from decimal import Decimal
from math import lcm
from threading import Lock
from typing import Any

import numpy as np

from ..errors import BadGrammar, BadPrompt
from ..models.checkpoint import Array
from ..models.packages import need
from ..models.text.tokenizer import Tokenizer
from .params import SamplingParams

_MOST_KEPT = 32  # grammars that were compiled
# Of one grammar: steps before its first token, at 3 us and 160 bytes, and states, at 1 to 2 KB.
_MOST_BEFORE, _MOST_STATES = 100_000, 20_000
# A number that is a multiple of n has a state for each remainder: 20 microseconds each.
_MOST_REMAINDERS = 10_000
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

    def copy(self) -> Grammar:
        found = Grammar(self._matcher.deep_copy(), self._vocab)
        found._allowed = self._allowed
        return found

    def allowed(self) -> Array:
        """A bit for each token that may come, the lowest of a byte first. A grammar that leads
        nowhere, or needs too much for it, is its author's error."""
        if self._allowed is None:
            bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
            found = bits[: -(-self._vocab // 8)].copy()
            found[-1] &= 0xFF >> -self._vocab % 8
            if self._matcher.is_error() or not found.any():
                raise BadGrammar(f"the grammar has no way on: {_cause(self._matcher)}")
            self._allowed = found
        return self._allowed

    def accept(self, token: int) -> None:
        self._allowed = None
        if not self._matcher.consume_token(token):
            raise BadGrammar(f"the grammar refuses token {token}: {_cause(self._matcher)}")


def _cause(matcher: Any) -> str:
    """Its first line; behind it the parser tells all of its state."""
    text = str(matcher.get_error()).partition("<state>")[0].strip()
    return text.partition("\n")[0][:200] or str(matcher.stop_reason())


class Grammars:
    """Of one model; what was compiled once is kept. For any thread, but it takes long: a second for
    the first grammar, unless all was prepared."""

    def __init__(self, tokenizer: Tokenizer | None, vocab: int, eos: frozenset[int]) -> None:
        self._tokenizer, self._vocab, self._eos = tokenizer, vocab, eos
        self._known: OrderedDict[str, Grammar] = OrderedDict()
        self._lock, self._reading = Lock(), Lock()
        self._read: Any = None

    def of(self, params: SamplingParams) -> Grammar | None:
        """At its begin, with the tokens known that may come first."""
        if not params.has_grammar:
            return None
        text = self._text(params)
        with self._lock:
            found = self._known.get(text)
        if found is None:  # others go on meanwhile
            found = Grammar(self._compiled(text), self._vocab)
            found.allowed()
        with self._lock:
            self._known[text] = found
            self._known.move_to_end(text)
            if len(self._known) > _MOST_KEPT:
                self._known.popitem(last=False)
        return found.copy()

    def prepare(self) -> None:
        """Reads the tokens, so that no request waits for it: no other thread runs meanwhile."""
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

    def _text(self, params: SamplingParams) -> str:
        make = need("llguidance").LLMatcher
        try:
            if params.regex is not None:
                return str(make.grammar_from_regex(params.regex))
            text = str(make.grammar_from_json_schema(
                params.json_schema, overrides={"whitespace_pattern": _BLANKS}))
        except ValueError as e:
            raise BadGrammar(f"the grammar cannot be read: {e}") from e
        _check_multiples(json.loads(str(params.json_schema)))  # it is no deeper than can be read
        return text

    def _compiled(self, text: str) -> Any:
        package = need("llguidance")
        limits = package.LLParserLimits(
            initial_lexer_fuel=_MOST_BEFORE, max_lexer_states=_MOST_STATES)
        matcher = package.LLMatcher(self._tokens, text, log_level=0, limits=limits)
        if matcher.is_error():
            raise BadGrammar(f"the grammar cannot be used: {_cause(matcher)}")
        return matcher


# ---- what would take for ever --------------------------------------------------------------------


def _check_multiples(schema: Any) -> None:
    """Numbers that meet in one place have a state for each remainder of all their divisors."""
    states = 1
    for divisor in _divisors(schema):
        states = lcm(states, divisor)
        if states > _MOST_REMAINDERS:
            raise BadGrammar("the values of multipleOf have a common multiple above "
                             f"{_MOST_REMAINDERS}",
                             hint="leave multipleOf away, or make it smaller")


def _divisors(part: Any) -> Iterator[int]:
    """The digits of each multipleOf in a schema: a power of ten makes no states."""
    if isinstance(part, list):
        for item in part:
            yield from _divisors(item)
    elif isinstance(part, dict):
        for name, value in part.items():
            yield from _divisors(value)
            if name == "multipleOf" and type(value) in (int, float) and abs(value) < float("inf"):
                digits = Decimal(str(value)).normalize().as_tuple().digits
                yield max(1, int("".join(map(str, digits))))
