"""DSPy."""

from __future__ import annotations

import dspy
from features import KEY, MODEL, SCRIPTED, SMOLLM2, feature, main


def lm(address: str, **more) -> dspy.LM:
    return dspy.LM(f"openai/{MODEL}", api_base=f"{address}/v1", api_key=KEY, cache=False, **more)


def person(adapter: dspy.Adapter) -> None:
    with dspy.context(lm=lm(SCRIPTED), adapter=adapter):
        answer = dspy.Predict("text -> name: str, age: int")(text="Bob is 30.")
    assert (answer.name, answer.age) == ("Bob", 30)


@feature("LM chat")
def chat():
    (answer,) = lm(SMOLLM2, max_tokens=8)("Say hello.")
    assert answer


@feature("LM text")
def text():
    (answer,) = lm(SMOLLM2, max_tokens=8, model_type="text")("The sky is")
    assert answer


@feature("n=2")
def several():
    assert len(lm(SMOLLM2, max_tokens=8)("Say hello.", n=2, temperature=0.8)) == 2


@feature("Predict with JSONAdapter")
def json_adapter():
    person(dspy.JSONAdapter())


@feature("Predict with ChatAdapter")
def chat_adapter():
    person(dspy.ChatAdapter())


@feature("model_type=responses")
def responses():
    (answer,) = lm(SMOLLM2, max_tokens=16, model_type="responses")("Say hello.")
    assert answer


main()
