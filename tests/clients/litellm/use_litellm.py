"""LiteLLM."""

from __future__ import annotations

import asyncio
import json

import litellm
from features import KEY, MODEL, SCRIPTED, SMOLLM2, feature, main
from pydantic import BaseModel

PROVIDERS = ("openai", "hosted_vllm")
HELLO = [{"role": "user", "content": "Say hello."}]
BOB = [{"role": "user", "content": "Bob is 30."}]
WEATHER = [{"role": "user", "content": "What is the weather in Paris?"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "get_weather", "description": "The weather of a city.", "parameters": SCHEMA}
TOOLS = [{"type": "function", "function": FUNCTION}]


class Person(BaseModel):
    name: str
    age: int


def at(url, provider="openai"):
    return {"model": f"{provider}/{MODEL}", "api_base": f"{url}/v1", "api_key": KEY}


@feature("completion, acompletion, as a stream; `openai/`, `hosted_vllm/`")
def _():
    for provider in PROVIDERS:
        asked = {"messages": HELLO, "max_tokens": 8}
        answer = litellm.completion(**at(SMOLLM2, provider), **asked)
        assert answer.choices[0].message.content
        more = {"n": 2, "seed": 1, "stop": ["zzz"], "metadata": {"a": "b"}}
        answer = asyncio.run(litellm.acompletion(**at(SMOLLM2, provider), **asked, **more))
        assert len(answer.choices) == 2
        asked |= {"stream": True, "stream_options": {"include_usage": True}}
        chunks = list(litellm.completion(**at(SMOLLM2, provider), **asked))
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        assert any(getattr(c, "usage", None) for c in chunks)


@feature("`logit_bias`")
def _():
    asked = {"messages": HELLO, "logit_bias": {"28": 100}, "max_tokens": 3, "temperature": 0}
    assert litellm.completion(**at(SMOLLM2), **asked).choices[0].message.content == ",,,"


@feature("text_completion")
def _():
    answer = litellm.text_completion(
        model=f"text-completion-openai/{MODEL}", prompt="The sky is", max_tokens=8,
        api_base=f"{SMOLLM2}/v1", api_key=KEY,
    )  # fmt: skip
    assert answer.choices[0].text


@feature("`response_format`: a pydantic model")
def _():
    for provider in PROVIDERS:
        answer = litellm.completion(
            **at(SCRIPTED, provider), messages=BOB, response_format=Person
        )
        person = Person.model_validate_json(answer.choices[0].message.content)
        assert person == Person(name="Bob", age=30)


@feature("tools and their results; `openai/`, `hosted_vllm/`")
def _():
    for provider in PROVIDERS:
        where = at(SCRIPTED, provider)
        asked = litellm.completion(**where, messages=WEATHER, tools=TOOLS).choices[0].message
        (call,) = asked.tool_calls
        assert call.function.name == "get_weather"
        assert json.loads(call.function.arguments) == {"city": "Paris"}
        result = {"role": "tool", "tool_call_id": call.id, "content": "22 degrees"}
        answer = litellm.completion(**where, messages=[*WEATHER, asked, result], tools=TOOLS)
        assert answer.choices[0].message.content == "It is 22 degrees in Paris."


@feature("responses(): text, a stream, tools")
def _():
    assert litellm.responses(**at(SMOLLM2), input="Say hello.", max_output_tokens=16).output
    kinds = [e.type for e in litellm.responses(**at(SCRIPTED), input="Bob is 30.", stream=True)]
    assert kinds[-1] == "response.completed"
    tools = [{"type": "function", **FUNCTION}]
    answer = litellm.responses(**at(SCRIPTED), input=WEATHER, tools=tools)
    (call,) = (item for item in answer.output if item.type == "function_call")
    assert json.loads(call.arguments) == {"city": "Paris"}


@feature("anthropic.messages: text, a stream, tools")
async def _():
    ask = litellm.anthropic.messages.acreate
    answer = await ask(**at(SCRIPTED), messages=BOB, max_tokens=64)
    assert "Bob" in answer["content"][0]["text"]
    stream = await ask(**at(SCRIPTED), messages=BOB, max_tokens=64, stream=True)
    events = b"".join([c if isinstance(c, bytes) else str(c).encode() async for c in stream])
    assert b"message_stop" in events
    tools = [{"name": "get_weather", "description": "The weather.", "input_schema": SCHEMA}]
    answer = await ask(**at(SCRIPTED), messages=WEATHER, max_tokens=64, tools=tools)
    (call,) = (block for block in answer["content"] if block["type"] == "tool_use")
    assert call["input"] == {"city": "Paris"}


@feature("a prompt too long is a ContextWindowExceededError")
def _():
    try:
        litellm.completion(**at(SMOLLM2), messages=[{"role": "user", "content": "word " * 20_000}])
        raise AssertionError("no error")
    except litellm.ContextWindowExceededError:
        pass


main()
