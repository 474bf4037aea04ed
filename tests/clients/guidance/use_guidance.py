"""guidance: models.OpenAI, and the models of vLLM and SGLang."""

from __future__ import annotations

import json

from features import KEY, MODEL, SCRIPTED, SMOLLM2, feature, main
from guidance import assistant, gen, models, regex, select, user
from guidance import json as schema

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}


def openai(address: str) -> models.Model:
    return models.OpenAI(MODEL, echo=False, base_url=f"{address}/v1", api_key=KEY)


def vllm(address: str) -> models.Model:
    return models.experimental.VLLMModel(MODEL, echo=False, base_url=f"{address}/v1", api_key=KEY)


def sglang(address: str) -> models.Model:
    return models.experimental.SglangModel(MODEL, echo=False, base_url=f"{address}/v1", api_key=KEY)


def answered(model: models.Model, prompt: str, grammar) -> str:
    with user():
        model += prompt
    with assistant():
        model += grammar
    return model["answer"]


@feature("OpenAI: gen")
def openai_gen():
    assert answered(openai(SMOLLM2), "Say hello.", gen("answer", max_tokens=8))


@feature("OpenAI: json")
def openai_json():
    text = answered(openai(SCRIPTED), "Bob is 30.", schema("answer", schema=PERSON))
    assert json.loads(text) == {"name": "Bob", "age": 30}


@feature("VLLMModel: gen")
def vllm_gen():
    assert answered(vllm(SMOLLM2), "Say hello.", gen("answer", max_tokens=8))


@feature("VLLMModel: regex")
def vllm_regex():
    text = answered(vllm(SMOLLM2), "A code?", regex("[A-Z]{3}-[0-9]{2}", name="answer"))
    assert text[3] == "-"


@feature("VLLMModel: select")
def vllm_select():
    grammar = select(["certainly", "never"], name="answer")
    assert answered(vllm(SMOLLM2), "Is the sky blue?", grammar) in ("certainly", "never")


@feature("VLLMModel: json")
def vllm_json():
    text = answered(vllm(SCRIPTED), "Bob is 30.", schema("answer", schema=PERSON))
    assert json.loads(text) == {"name": "Bob", "age": 30}


@feature("SglangModel: regex")
def sglang_regex():
    text = answered(sglang(SMOLLM2), "A code?", regex("[A-Z]{3}-[0-9]{2}", name="answer"))
    assert text[3] == "-"


main()
