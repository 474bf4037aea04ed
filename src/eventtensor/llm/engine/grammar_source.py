"""The text of a grammar in the form that llguidance reads.

Grammars whose compilation would take too long are an error here. grammar.py compiles them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from math import lcm
from typing import Any

from ...errors import BadGrammar
from ..optional_packages import need
from .closed_schema import close
from .sampling_params import SamplingParams

# Between the parts of a JSON text. A model must not go on with blanks for ever.
BLANKS = r"[\x20\n\t]{0,16}"
# A number that is a multiple of n has a state for each remainder: 20 microseconds each.
_MOST_REMAINDERS = 10_000
_MOST_INNER = 256  # grammars within one: the time grows with their square
_MOST_RULE_CHARACTERS = 2_000_000  # of a GBNF text, times its rules: less than 2 s to convert
_INNER_JSON = re.compile(r"%(?:json|regex)\s*")


def grammar_source(params: SamplingParams, additional_properties: bool = False) -> str:
    """The text of the params' one grammar. With `additional_properties` objects of a JSON schema
    may have properties of which it says nothing."""
    make = need("llguidance").LLMatcher
    try:
        if params.regex is not None:
            return str(make.grammar_from_regex(params.regex))
        if params.choice is not None:
            texts = " | ".join(json.dumps(text) for text in params.choice)
            return str(make.grammar_from_lark(f"start: CHOICE\nCHOICE: {texts}"))
        if params.grammar is not None:
            return _checked(params.grammar)
        schema = schema_of(params, additional_properties)
        _check_multiples([schema])
        return str(make.grammar_from_json_schema(
            json.dumps(schema, allow_nan=False), overrides={"whitespace_pattern": BLANKS}))
    except ValueError as e:
        raise BadGrammar(f"the grammar cannot be read: {e}") from e


def schema_of(params: SamplingParams, additional_properties: bool) -> dict[str, Any]:
    """The JSON schema of the answer, as it is compiled."""
    schema: dict[str, Any] = json.loads(str(params.json_schema))  # it is no deeper than can be read
    return schema if additional_properties else close(schema)


# ---- what users write ----------------------------------------------------------------------------


def _checked(text: str) -> str:
    """A Lark or GBNF text, or a JSON object with some as `grammars`."""
    if not text.lstrip().startswith("{"):
        text = _as_lark(text)
        _check_inner(list(_inner(text)), text.count("%lark"))
        return str(need("llguidance").LLMatcher.grammar_from_lark(text))
    given = _read(text, len(text) - len(text.lstrip()))[0]
    some = given.get("grammars")
    texts = [s for s in _strings(given) if "%" in s]
    within = [x for s in texts for x in _inner(s)]
    _check_inner([given, *within], sum(s.count("%lark") for s in texts)
                 + (len(some) if isinstance(some, list) else 0))
    return text


def _inner(lark: str) -> Iterator[Any]:
    """The JSON of each %json. What seems to be one in a comment or a string is refused, unless JSON
    follows it; lines of a comment that are JSON hide nothing from llguidance."""
    at = 0
    while (found := _INNER_JSON.search(lark, at)) is not None:
        value, at = _read(lark, found.end())
        yield value


def _check_inner(schemas: list[Any], more: int) -> None:
    if len(schemas) + more > _MOST_INNER:
        raise BadGrammar(f"the grammar has more than {_MOST_INNER} grammars within it")
    _check_multiples(schemas)


def _as_lark(text: str) -> str:
    known = need("llguidance.gbnf_to_lark")
    if "::=" not in text or known.is_lark_syntax(text):
        return text
    if text.count("::=") * len(text) > _MOST_RULE_CHARACTERS:
        raise BadGrammar("the GBNF text is too long", hint="write it in the syntax of Lark")
    try:
        return str(known.gbnf_to_lark(text))
    except Exception as e:  # it has no class of errors for all of them
        raise BadGrammar(f"the GBNF text cannot be read: {str(e)[:200]}") from e


def _read(text: str, start: int) -> tuple[Any, int]:
    """A JSON value, and where it ends."""
    try:
        return json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError) as e:
        raise BadGrammar(f"the grammar has JSON that cannot be read: {str(e)[:200]}") from e


def _strings(part: Any) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    elif isinstance(part, list | dict):
        for item in part.values() if isinstance(part, dict) else part:
            yield from _strings(item)


# ---- what would take for ever --------------------------------------------------------------------


def _check_multiples(schemas: list[Any]) -> None:
    """Numbers that meet in one place have a state for each remainder of all their divisors."""
    states = 1
    for divisor in _divisors(schemas):
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
