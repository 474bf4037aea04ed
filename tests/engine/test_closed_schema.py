"""Objects of a schema without additionalProperties: which properties an answer may have."""

from __future__ import annotations

import json
import time

import pytest

from eventtensor.errors import BadGrammar
from eventtensor.llm.engine.closed_schema import close
from eventtensor.llm.engine.grammar import Grammars
from tests.engine.grammar_texts import passes

INT, TEXT = {"type": "integer"}, {"type": "string"}
A = {"type": "object", "properties": {"a": INT}, "required": ["a"]}
B = {"type": "object", "properties": {"b": INT}, "required": ["b"]}
TO_A = {"$ref": "#/$defs/A"}

# A schema, texts of answers that keep to it, and texts with a property too many.
CASES = {
    "plain": (A, ['{"a":1}'], ['{"a":1,"b":1}']),
    "without a type": ({"properties": {"a": INT}}, ["{}", '{"a":1}'], ['{"b":1}']),
    "no property": ({"type": "object", "properties": {}}, ["{}"], ['{"a":1}']),
    "any object": ({"type": "object"}, ["{}", '{"a":{"b":[1]}}'], []),
    "asked to be open": (A | {"additionalProperties": True}, ['{"a":1,"b":1}'], []),
    "open for numbers": (A | {"additionalProperties": INT}, ['{"a":1,"b":1}'], ['{"a":1,"b":"x"}']),
    "by pattern": (A | {"patternProperties": {"^x": INT}}, ['{"a":1,"xy":1}'], []),
    "required by name alone": ({"properties": {"a": INT}, "required": ["a", "b"]},
                               ['{"a":1,"b":"x"}'], ['{"a":1}', '{"a":1,"b":1,"c":1}']),
    "more than it names": ({"properties": {}, "minProperties": 1}, ['{"z":1}'], []),
    "nested": ({"properties": {"x": A, "y": {"type": "array", "items": A}}},
               ['{"x":{"a":1},"y":[{"a":1}]}'], ['{"x":{"a":1,"b":1}}', '{"y":[{"a":1,"c":1}]}']),
    "beside a definition": ({"$defs": {"A": A}, "properties": {"x": TO_A, "y": TO_A}},
                            ['{"x":{"a":1}}'], ['{"x":{"a":1,"b":1}}', '{"z":1}']),
    "a definition alone": ({"$defs": {"A": A}, "$ref": "#/$defs/A"}, ['{"a":1}'],
                           ['{"a":1,"b":1}']),
    "a definition, the old way": (
        {"definitions": {"A": A}, "properties": {"x": {"allOf": [{"$ref": "#/definitions/A"}],
                                                       "description": "one"}}},
        ['{"x":{"a":1}}'], ['{"x":{"a":1,"b":1}}']),
    "optional": ({"$defs": {"A": A}, "properties": {"x": {"anyOf": [TO_A, {"type": "null"}],
                                                          "default": None}}},
                 ['{"x":null}', '{"x":{"a":1}}'], ['{"x":{"a":1,"b":1}}']),
    "one of two": ({"anyOf": [A, B]}, ['{"a":1}', '{"b":1}'], ['{"a":1,"b":1}', '{"a":1,"c":1}']),
    "all of two": ({"allOf": [A, B]}, ['{"a":1,"b":1}'], ['{"a":1}', '{"a":1,"b":1,"c":1}']),
    "all of a definition and more": (
        {"$defs": {"A": A}, "allOf": [TO_A, B]}, ['{"a":1,"b":1}'], ['{"a":1,"b":1,"c":1}']),
    "more than a definition": (
        {"$defs": {"A": A}, "$ref": "#/$defs/A", "properties": {"b": INT}},
        ['{"a":1}', '{"a":1,"b":1}'], ['{"a":1,"c":1}']),
    "a definition in two ways": (
        {"$defs": {"A": A}, "properties": {"x": TO_A, "y": {"allOf": [TO_A, B]}}},
        ['{"y":{"a":1,"b":1}}', '{"x":{"a":1}}'], ['{"y":{"a":1,"b":1,"c":1}}']),
    "some and one of two": (
        {"properties": {"k": INT}, "anyOf": [A, B]}, ['{"k":1,"a":1}', '{"k":1,"b":1}'],
        ['{"k":1}', '{"k":1,"a":1,"c":1}']),
    "one or the other is required": (
        {"properties": {"a": INT, "b": INT}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        ['{"a":1}', '{"b":1}', '{"a":1,"b":1}'], ["{}", '{"a":1,"c":1}']),
    "all, of which one is open": (
        {"allOf": [A, B | {"additionalProperties": True}]}, ['{"a":1,"b":1,"c":1}'], []),
    "within itself": (
        {"$defs": {"T": {"properties": {"l": {"$ref": "#/$defs/T"}, "r": {"$ref": "#"}}}},
         "$ref": "#/$defs/T"}, ['{"l":{"l":{}}}', '{"r":{"r":{}}}'], ['{"l":{"x":1}}']),
    "a property of that name": (
        {"properties": {"properties": A, "additionalProperties": INT}},
        ['{"properties":{"a":1},"additionalProperties":1}'], ['{"properties":{"a":1,"b":1}}']),
    "no schema": ({"enum": [{"properties": {"a": 1}}]}, ['{"properties":{"a":1}}'], []),
}


@pytest.mark.parametrize("name", CASES)
def test_an_object_has_no_properties_that_nobody_has_named(grammars, tokenizer, name):
    schema, fine, wrong = CASES[name]
    before = json.dumps(schema)
    assert [t for t in fine if not passes(grammars, tokenizer, t, json_schema=schema)] == []
    assert [t for t in wrong if passes(grammars, tokenizer, t, json_schema=schema)] == []
    assert json.dumps(schema) == before


def test_they_may_have_them_if_asked(tokenizer):
    known = Grammars(tokenizer, tokenizer.vocab, frozenset({1}), additional_properties=True)
    assert passes(known, tokenizer, '{"a":1,"b":1}', json_schema=A)
    assert not passes(known, tokenizer, '{"a":1,"b":1}',
                      json_schema=A | {"additionalProperties": False})


def test_what_is_closed_says_so_once():
    """What is known already stays as it is."""
    for schema in (A | {"additionalProperties": False}, {"type": "object"}, TEXT,
                   {"$ref": "other.json#/a"}, {"$ref": "other.json", "properties": {"a": INT}},
                   {"allOf": [{"$ref": "#/nowhere"}, A]}):
        assert close(schema) == schema
    both = close({"allOf": [B, A]})
    assert close(both) == both and list(both["properties"]) == ["b", "a"]


@pytest.mark.parametrize("schema", [
    {"$defs": {f"d{k}": {"allOf": [{"$ref": f"#/$defs/d{n}"} for n in range(k)] or [A]}
               for k in range(200)}, "$ref": "#/$defs/d199"},
    {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
    {"$defs": {"a": {"anyOf": [{"properties": {f"p{k}": INT}} for k in range(3000)]}},
     "properties": {f"q{k}": {"$ref": "#/$defs/a", "properties": {}} for k in range(500)}},
])
def test_schemas_that_refer_to_much_end_soon(schema):
    began = time.thread_time()
    try:
        assert close(schema)
    except BadGrammar as e:
        assert "hang together" in e.message
    assert time.thread_time() - began < 20


def test_schemas_that_name_each_other_in_a_long_row_are_closed():
    """A look at one of them does not go through those before it."""
    row = {f"d{k}": {"$ref": f"#/$defs/d{k + 1}"} for k in range(5000)}
    last = {"type": "object", "properties": {"a": {}}}
    found = close({"allOf": [{"$ref": "#/$defs/d0"}], "minProperties": 0,
                   "$defs": row | {"d5000": last}})
    assert found["additionalProperties"] is False and found["properties"] == {"a": True}
