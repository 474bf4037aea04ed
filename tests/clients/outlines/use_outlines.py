"""Outlines: from_openai, from_vllm and from_sglang."""

from __future__ import annotations

from typing import Literal

import outlines
from features import KEY, MODEL, SCRIPTED, SMOLLM2, feature, main
from openai import OpenAI
from outlines.types import CFG, Regex
from pydantic import BaseModel


class Person(BaseModel):
    name: str
    age: int


def client(address: str) -> OpenAI:
    return OpenAI(base_url=f"{address}/v1", api_key=KEY)


def is_bob(text: str) -> bool:
    return Person.model_validate_json(text) == Person(name="Bob", age=30)


@feature("from_openai: text")
def openai_text():
    assert outlines.from_openai(client(SMOLLM2), MODEL)("Say hello.", max_tokens=8)


@feature("from_openai: stream")
def openai_stream():
    model = outlines.from_openai(client(SMOLLM2), MODEL)
    assert "".join(model.stream("Say hello.", max_tokens=8))


@feature("from_openai: pydantic")
def openai_pydantic():
    assert is_bob(outlines.from_openai(client(SCRIPTED), MODEL)("Bob is 30.", Person))


@feature("from_vllm: text")
def vllm_text():
    assert outlines.from_vllm(client(SMOLLM2), MODEL)("Say hello.", max_tokens=8)


@feature("from_vllm: pydantic")
def vllm_pydantic():
    assert is_bob(outlines.from_vllm(client(SCRIPTED), MODEL)("Bob is 30.", Person))


@feature("from_vllm: Literal")
def vllm_literal():
    model = outlines.from_vllm(client(SMOLLM2), MODEL)
    assert model("Is the sky blue?", Literal["certainly", "never"]) in ("certainly", "never")


@feature("from_vllm: int")
def vllm_int():
    int(outlines.from_vllm(client(SMOLLM2), MODEL)("2 + 2 =", int, max_tokens=8))


@feature("from_vllm: Regex")
def vllm_regex():
    model = outlines.from_vllm(client(SMOLLM2), MODEL)
    assert model("A code?", Regex("[A-Z]{3}-[0-9]{2}"))[3] == "-"


@feature("from_vllm: CFG")
def vllm_grammar():
    model = outlines.from_vllm(client(SMOLLM2), MODEL)
    assert model("Yes or no?", CFG('start: "yes" | "no"')) in ("yes", "no")


@feature("from_sglang: pydantic")
def sglang_pydantic():
    assert is_bob(outlines.from_sglang(client(SCRIPTED), MODEL)("Bob is 30.", Person))


@feature("from_sglang: Literal")
def sglang_literal():
    model = outlines.from_sglang(client(SMOLLM2), MODEL)
    assert model("Is the sky blue?", Literal["certainly", "never"]) in ("certainly", "never")


main()
