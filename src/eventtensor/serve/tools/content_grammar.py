"""What answers that call nothing keep to, if the params say something of it, as a part of a larger
grammar."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...engine.grammar_source import BLANKS, grammar_source, schema_of
from ...engine.sampling_params import SamplingParams

Json = dict[str, Any]


@dataclass(frozen=True)
class Content:
    """`rule` is in Lark; `grammars` are those that it names."""

    rule: str
    grammars: tuple[Json, ...] = ()

    @classmethod
    def of(cls, params: SamplingParams, additional_properties: bool = False) -> Content | None:
        """None: any text may come."""
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

    def within(self, lark: str) -> str:
        """The whole grammar, of which the rule is a part."""
        if not self.grammars:
            return lark
        return json.dumps({"grammars": [{"lark_grammar": lark}, *self.grammars]})


def json_rule(schema: Mapping[str, Any], **guidance: Any) -> str:
    """Without a percent sign in texts, which could seem to be of Lark."""
    text = json.dumps({**schema, "x-guidance": {"whitespace_pattern": BLANKS, **guidance}})
    return "%json " + text.replace("%", r"\u0025")
