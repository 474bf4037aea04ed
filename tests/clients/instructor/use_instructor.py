"""Instructor."""

from __future__ import annotations

import instructor
from features import KEY, MODEL, SCRIPTED, feature, main
from openai import OpenAI
from pydantic import BaseModel

BOB = [{"role": "user", "content": "Bob is 30."}]


class Person(BaseModel):
    name: str
    age: int


def extract(**mode):
    client = instructor.from_openai(OpenAI(base_url=f"{SCRIPTED}/v1", api_key=KEY), **mode)
    found = client.chat.completions.create(model=MODEL, response_model=Person, messages=BOB)
    assert (found.name, found.age) == ("Bob", 30)
    return client


@feature("the default mode (tools)")
def _():
    client = extract()
    several = client.chat.completions.create_iterable(
        model=MODEL, response_model=Person, messages=BOB
    )
    assert [(p.name, p.age) for p in several] == [("Bob", 30)]


@feature("TOOLS_STRICT")
def _():
    extract(mode=instructor.Mode.TOOLS_STRICT)


@feature("JSON_SCHEMA, JSON, MD_JSON")
def _():
    for mode in (instructor.Mode.JSON_SCHEMA, instructor.Mode.JSON, instructor.Mode.MD_JSON):
        extract(mode=mode)


@feature("create_partial")
def _():
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        client = instructor.from_openai(OpenAI(base_url=f"{SCRIPTED}/v1", api_key=KEY), mode=mode)
        parts = list(
            client.chat.completions.create_partial(model=MODEL, response_model=Person, messages=BOB)
        )
        assert len(parts) > 1 and (parts[-1].name, parts[-1].age) == ("Bob", 30)


main()
