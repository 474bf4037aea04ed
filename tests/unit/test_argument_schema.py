"""Schemas of arguments: what a grammar gets of them."""

from __future__ import annotations

import json

import pytest

from eventtensor.errors import BadTool
from eventtensor.llm.serve.chat_request import Tool
from eventtensor.llm.serve.tools.argument_schema import argument_rule


def schema(parameters, strict=False):
    found = json.loads(argument_rule(Tool("f", parameters, strict=strict)).removeprefix("%json "))
    guidance = found.pop("x-guidance")
    assert guidance["lenient"] is not strict and guidance["whitespace_pattern"]
    return found


NONE = {"type": "object", "properties": {}, "additionalProperties": False}


@pytest.mark.parametrize("parameters", [{}, {"type": "object", "properties": {}},
                                        {"properties": {}, "type": ["object", "null"]}])
def test_a_tool_without_parameters_has_no_arguments(parameters):
    assert schema(parameters) == NONE


def test_only_named_properties_come_unless_the_schema_says_so():
    inner = {"type": "object", "properties": {"x": {}}}
    closed = inner | {"additionalProperties": False}
    assert schema({"properties": {"a": inner, "b": {"items": inner}}, "$defs": {"c": inner}}) == {
        "type": "object", "properties": {"a": closed, "b": {"items": closed}},
        "$defs": {"c": closed}, "additionalProperties": False}
    free = {"type": "object", "properties": {"a": {"type": "object"}}, "additionalProperties": True}
    assert schema(free) == free
    assert schema({"type": "object"}) == {"type": "object"}


def test_an_object_of_several_schemas_has_the_properties_of_all():
    both = {"allOf": [{"$ref": "#/$defs/p"}, {"properties": {"y": {}}}]}
    parameters = {"type": "object", "properties": {"a": both},
                  "$defs": {"p": {"properties": {"x": {}}}}}
    closed = both | {"properties": {"x": True, "y": True}, "additionalProperties": False}
    assert schema(parameters) == parameters | {
        "properties": {"a": closed}, "additionalProperties": False}


def test_texts_for_people_are_left_out_and_properties_of_their_names_are_not():
    texts = {"description": "d", "title": "t", "examples": ["e"]}
    assert schema({"type": "object", **texts, "required": ["title"], "properties": {
        "title": {"type": "string", **texts}, "description": {"enum": ["title"], **texts}}}) == {
        "type": "object", "required": ["title"], "additionalProperties": False, "properties": {
            "title": {"type": "string"}, "description": {"enum": ["title"]}}}


def test_what_it_says_does_not_look_like_a_grammar():
    rule = argument_rule(Tool("f", {"properties": {"a": {"const": "%json {"}}}))
    text = rule.removeprefix("%json ")
    assert "%" not in text and json.loads(text)["properties"] == {"a": {"const": "%json {"}}


@pytest.mark.parametrize("parameters", [{"type": "integer"}, {"type": ["string"]}, {"type": None}])
def test_arguments_are_an_object(parameters):
    with pytest.raises(BadTool, match="its parameters are no object"):
        schema(parameters)


def test_what_is_nested_too_deep_is_refused():
    deep = {}
    for _ in range(5000):
        deep = {"items": deep}
    with pytest.raises(BadTool, match="'f'"):
        schema({"properties": {"a": deep}})
