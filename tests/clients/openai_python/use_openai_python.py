"""The openai package."""

from __future__ import annotations

from features import KEY, MODEL, SCRIPTED, SMOLLM2, feature, main
from openai import OpenAI
from pydantic import BaseModel

smollm2 = OpenAI(base_url=f"{SMOLLM2}/v1", api_key=KEY)
scripted = OpenAI(base_url=f"{SCRIPTED}/v1", api_key=KEY)
HELLO = [{"role": "user", "content": "Say hello."}]


class Person(BaseModel):
    name: str
    age: int


@feature("chat")
def chat():
    answer = smollm2.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=8)
    assert answer.choices[0].message.content
    assert answer.usage.completion_tokens <= 8


@feature("stream with usage")
def stream():
    chunks = list(
        smollm2.chat.completions.create(
            model=MODEL,
            messages=HELLO,
            max_tokens=8,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert "".join(c.choices[0].delta.content or "" for c in chunks[:-1])
    assert chunks[-1].usage.completion_tokens <= 8


@feature("completions")
def completions():
    answer = smollm2.completions.create(model=MODEL, prompt="The sky is", max_tokens=8)
    assert answer.choices[0].text


@feature("parse of a pydantic model")
def parse():
    for client in (smollm2, scripted):
        answer = client.chat.completions.parse(
            model=MODEL,
            messages=[{"role": "user", "content": "Bob is 30."}],
            response_format=Person,
            temperature=0,
            max_tokens=100,
        )
        assert answer.choices[0].message.parsed == Person(name="Bob", age=30)


main()
