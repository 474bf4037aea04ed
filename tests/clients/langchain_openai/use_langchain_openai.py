"""LangChain."""

from __future__ import annotations

import asyncio

from features import KEY, MODEL, SCRIPTED, SMOLLM2, feature, main
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from pydantic import BaseModel

smollm2 = ChatOpenAI(model=MODEL, base_url=f"{SMOLLM2}/v1", api_key=KEY, max_tokens=8)
scripted = ChatOpenAI(model=MODEL, base_url=f"{SCRIPTED}/v1", api_key=KEY)
WEATHER = "What is the weather in Paris?"


class Person(BaseModel):
    """A person."""

    name: str
    age: int


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"22 degrees in {city}"


@feature("invoke, batch, abatch")
def _():
    assert smollm2.invoke("Say hello.").content
    assert len(smollm2.batch(["Hi", "Hello"])) == 2
    assert len(asyncio.run(scripted.abatch(["Hi", "Hello"]))) == 2


@feature("stream, `stream_usage`")
def _():
    chunks = list(smollm2.stream("Say hello.", stream_usage=True))
    assert "".join(c.content for c in chunks)
    assert any(c.usage_metadata and c.usage_metadata["output_tokens"] for c in chunks)


@feature("seed, stop, logprobs")
def _():
    model = smollm2.bind(seed=1, stop=["zzz"], logprobs=True, top_logprobs=2)
    assert model.invoke("Say hello.").response_metadata["logprobs"]["content"]


@feature("OpenAI: completions, as a stream too")
def _():
    model = OpenAI(model=MODEL, base_url=f"{SMOLLM2}/v1", api_key=KEY, max_tokens=8)
    assert model.invoke("The sky is")
    assert "".join(model.stream("The sky is"))
    several = OpenAI(
        model=MODEL, base_url=f"{SMOLLM2}/v1", api_key=KEY, max_tokens=8, n=2, best_of=2
    )
    assert len(several.generate(["The sky is"]).generations[0]) == 2


@feature("with_structured_output: the default, json_mode, function_calling")
def _():
    for method in ({}, {"method": "json_mode"}, {"method": "function_calling"}):
        model = scripted.with_structured_output(Person, **method)
        assert model.invoke("Bob is 30. Answer in JSON.") == Person(name="Bob", age=30), method


@feature("bind_tools: auto, any, named, as a stream")
def _():
    for choice in (None, "any", "get_weather"):
        (call,) = scripted.bind_tools([get_weather], tool_choice=choice).invoke(WEATHER).tool_calls
        assert (call["name"], call["args"]) == ("get_weather", {"city": "Paris"})
    whole = None
    for chunk in scripted.bind_tools([get_weather]).stream(WEATHER):
        whole = chunk if whole is None else whole + chunk
    assert whole.tool_calls[0]["args"] == {"city": "Paris"}


@feature("results of tools")
def _():
    model = scripted.bind_tools([get_weather])
    asked = model.invoke(WEATHER)
    (call,) = asked.tool_calls
    result = ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"])
    answer = model.invoke([HumanMessage(WEATHER), asked, result])
    assert answer.content == "It is 22 degrees in Paris."


@feature("use_responses_api: text, tools, structured output")
def _():
    model = ChatOpenAI(model=MODEL, base_url=f"{SCRIPTED}/v1", api_key=KEY, use_responses_api=True)
    assert model.invoke("Bob is 30.").text
    assert "".join(c.text for c in model.stream("Bob is 30."))
    asked = model.bind_tools([get_weather]).invoke(WEATHER)
    assert asked.tool_calls[0]["args"] == {"city": "Paris"}
    result = ToolMessage("22 degrees", tool_call_id=asked.tool_calls[0]["id"])
    answer = model.bind_tools([get_weather]).invoke([HumanMessage(WEATHER), asked, result])
    assert answer.text == "It is 22 degrees in Paris."
    parsed = model.with_structured_output(Person).invoke("Bob is 30.")
    assert parsed == Person(name="Bob", age=30)


@feature("a prompt too long is a ContextOverflowError")
def _():
    try:
        smollm2.invoke("word " * 20_000)
        raise AssertionError("no error")
    except ContextOverflowError:
        pass


main()
