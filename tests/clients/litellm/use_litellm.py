"""LiteLLM."""

from __future__ import annotations

import litellm
from features import KEY, MODEL, SCRIPTED, SMOLLM2, feature, main

SMALL = {"model": f"openai/{MODEL}", "api_base": f"{SMOLLM2}/v1", "api_key": KEY}
TOLD = {"model": f"openai/{MODEL}", "api_base": f"{SCRIPTED}/v1", "api_key": KEY}
HELLO = [{"role": "user", "content": "Say hello."}]


@feature("completion")
def completion():
    answer = litellm.completion(**SMALL, messages=HELLO, max_tokens=8)
    assert answer.choices[0].message.content


@feature("stream")
def stream():
    chunks = litellm.completion(**SMALL, messages=HELLO, max_tokens=8, stream=True)
    assert "".join(c.choices[0].delta.content or "" for c in chunks)


@feature("scripted answer")
def scripted_answer():
    answer = litellm.completion(**TOLD, messages=[{"role": "user", "content": "Bob is 30"}])
    assert answer.choices[0].message.content == '{"name": "Bob", "age": 30}'


main()
