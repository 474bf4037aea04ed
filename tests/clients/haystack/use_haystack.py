"""Haystack, with OpenAIChatGenerator."""

from __future__ import annotations

import json

from features import KEY, MODEL, SCRIPTED, SMOLLM2, feature, main
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import Tool
from haystack.utils import Secret
from pydantic import BaseModel

HELLO = [ChatMessage.from_user("Say hello.")]
WEATHER = [ChatMessage.from_user("What is the weather in Paris?")]
TOOL = Tool(
    name="get_weather",
    description="The weather of a city.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    function=lambda city: f"22 degrees in {city}",
)


class Person(BaseModel):
    name: str
    age: int


def generator(address: str, **more) -> OpenAIChatGenerator:
    key = Secret.from_token(KEY)
    return OpenAIChatGenerator(api_key=key, model=MODEL, api_base_url=f"{address}/v1", **more)


def calls_weather(message: ChatMessage) -> bool:
    (call,) = message.tool_calls
    return (call.tool_name, call.arguments) == ("get_weather", {"city": "Paris"})


@feature("chat")
def chat():
    (answer,) = generator(SMOLLM2).run(HELLO, generation_kwargs={"max_tokens": 8})["replies"]
    assert answer.text


@feature("streaming_callback")
def streaming():
    pieces = []
    answer = generator(SMOLLM2, streaming_callback=pieces.append).run(
        HELLO, generation_kwargs={"max_tokens": 8}
    )
    assert "".join(p.content for p in pieces) == answer["replies"][0].text


@feature("n, seed and stop")
def several():
    wanted = {"max_tokens": 8, "n": 2, "seed": 3, "stop": ["!"]}
    assert len(generator(SMOLLM2).run(HELLO, generation_kwargs=wanted)["replies"]) == 2


@feature("response_format")
def response_format():
    answer = generator(SCRIPTED, generation_kwargs={"response_format": Person}).run(
        [ChatMessage.from_user("Bob is 30.")]
    )
    assert json.loads(answer["replies"][0].text) == {"name": "Bob", "age": 30}


@feature("tools")
def tools():
    model = generator(SCRIPTED, tools=[TOOL])
    (call,) = model.run(WEATHER)["replies"]
    assert calls_weather(call)
    result = ChatMessage.from_tool("22 degrees", origin=call.tool_calls[0])
    (answer,) = model.run([*WEATHER, call, result])["replies"]
    assert answer.text == "It is 22 degrees in Paris."


@feature("tools, streamed")
def streamed_tools():
    pieces = []
    model = generator(SCRIPTED, tools=[TOOL], streaming_callback=pieces.append)
    (call,) = model.run(WEATHER)["replies"]
    assert calls_weather(call)
    assert any(p.tool_calls for p in pieces)


main()
