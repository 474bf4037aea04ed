"""Turns the JSON schema of a tool's arguments into a grammar rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....errors import BadGrammar, BadTool
from ...engine.closed_schema import close
from ..chat_request import Tool
from .content_grammar import json_rule

_ANNOTATIONS = {"title", "description", "examples", "default", "deprecated", "readOnly",
                "writeOnly", "$comment"}
# Keywords whose values are schemas: in a table, in a list, or single.
_TABLES = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
_LISTS = {"anyOf", "oneOf", "allOf", "prefixItems"}
_SINGLE = {"items", "additionalProperties", "not", "if", "then", "else", "contains",
           "propertyNames", "unevaluatedItems", "unevaluatedProperties"}


def argument_rule(tool: Tool) -> str:
    """The rule allows properties beyond the named ones only where the schema does. A keyword that a
    grammar cannot enforce is an error in a strict tool and ignored in others."""
    parameters = dict(tool.parameters) or {"properties": {}}
    if not _may_be_object(parameters):
        raise BadTool(f"tool {tool.name!r}: its parameters are no object",
                      hint="their schema has the type object, and the arguments as properties")
    try:
        schema = close(_strip_annotations(parameters)) | {"type": "object"}
        return json_rule(schema, lenient=not tool.strict)
    except (BadGrammar, TypeError, ValueError, RecursionError) as e:
        raise BadTool(f"tool {tool.name!r}: its parameters are no schema: "
                      f"{getattr(e, 'message', e)}") from None


def _may_be_object(parameters: Mapping[str, Any]) -> bool:
    kind = parameters.get("type", "object")
    return kind == "object" or (isinstance(kind, list) and "object" in kind)


def _strip_annotations(schema: Any) -> Any:
    """The schema without its annotations for readers."""
    if not isinstance(schema, Mapping):
        return schema
    found: dict[str, Any] = {}
    for name, value in schema.items():
        if name in _TABLES and isinstance(value, Mapping):
            found[name] = {key: _strip_annotations(inner) for key, inner in value.items()}
        elif (name in _LISTS or name == "items") and isinstance(value, list):
            found[name] = [_strip_annotations(inner) for inner in value]
        elif name in _SINGLE:
            found[name] = _strip_annotations(value)
        elif name not in _ANNOTATIONS:
            found[name] = value
    return found
