"""The grammar of an answer without tool calls, as one rule of a larger grammar.

`call_grammar.py` puts the rule beside the rules for calls."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...engine.grammar_source import BLANKS, grammar_source, schema_of
from ...engine.sampling_params import SamplingParams

Json = dict[str, Any]


@dataclass(frozen=True)
class ContentGrammar:
    """`rule` is in Lark. `grammars` are the grammars that the rule refers to."""

    rule: str
    grammars: tuple[Json, ...] = ()

    @classmethod
    def from_params(
        cls, params: SamplingParams, additional_properties: bool = False
    ) -> ContentGrammar | None:
        """None: the params allow any text."""
        if not params.has_grammar:
            return None
        if params.json_schema is not None:
            return cls(json_rule(schema_of(params, additional_properties)))
        source = grammar_source(params)
        if not source.lstrip().startswith("{"):
            return cls("@content", ({"name": "content", "lark_grammar": source},))
        first, *others = json.loads(source)["grammars"]
        name = first.get("name") or "content"
        return cls(f"@{name}", ({**first, "name": name}, *others))

    def embed(self, lark: str) -> str:
        """The whole grammar; `lark` contains the rule."""
        if not self.grammars:
            return lark
        return json.dumps({"grammars": [{"lark_grammar": lark}, *self.grammars]})


def json_rule(schema: Mapping[str, Any], **guidance: Any) -> str:
    """A rule for JSON of this schema. Percent signs are escaped, because Lark would read them."""
    text = json.dumps({**schema, "x-guidance": {"whitespace_pattern": BLANKS, **guidance}})
    return "%json " + text.replace("%", r"\u0025")
