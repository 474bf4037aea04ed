"""The OpenAI Agents SDK."""

from __future__ import annotations

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from features import KEY, MODEL, SCRIPTED, feature, main
from openai import AsyncOpenAI
from pydantic import BaseModel

set_tracing_disabled(True)  # else it sends traces to OpenAI


def agent(kind, **options):
    client = AsyncOpenAI(base_url=f"{SCRIPTED}/v1", api_key=KEY)
    return Agent(name="helper", model=kind(model=MODEL, openai_client=client), **options)


class Person(BaseModel):
    name: str
    age: int


@function_tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    assert city == "Paris"
    return "22 degrees"


async def runs(kind):
    helper = agent(kind, instructions="Be brief.")
    assert "Bob" in (await Runner.run(helper, "Bob is 30.")).final_output
    streamed = Runner.run_streamed(helper, "Bob is 30.")
    kinds = [e.type async for e in streamed.stream_events()]
    assert "raw_response_event" in kinds and "Bob" in streamed.final_output


async def output_type(kind):
    answer = await Runner.run(agent(kind, output_type=Person), "Bob is 30.")
    assert answer.final_output == Person(name="Bob", age=30)


async def tools(kind):
    helper = agent(kind, tools=[get_weather])
    answer = await Runner.run(helper, "What is the weather in Paris?")
    assert answer.final_output == "It is 22 degrees in Paris."
    assert "tool_call_output_item" in [item.type for item in answer.new_items]
    streamed = Runner.run_streamed(helper, "What is the weather in Paris?")
    names = [e.name async for e in streamed.stream_events() if e.type == "run_item_stream_event"]
    assert "tool_called" in names and "tool_output" in names
    assert streamed.final_output == "It is 22 degrees in Paris."


async def handoffs(kind):
    expert = agent(kind, tools=[get_weather]).clone(name="weatherman")
    first = agent(kind, handoffs=[expert])
    answer = await Runner.run(first, "Let the weatherman answer.")
    assert answer.last_agent.name == "weatherman"


@feature("chat: run, run_streamed")
async def _():
    await runs(OpenAIChatCompletionsModel)


@feature("chat: output_type")
async def _():
    await output_type(OpenAIChatCompletionsModel)


@feature("chat: tools")
async def _():
    await tools(OpenAIChatCompletionsModel)


@feature("chat: handoffs")
async def _():
    await handoffs(OpenAIChatCompletionsModel)


@feature("responses (the default): run, run_streamed")
async def _():
    await runs(OpenAIResponsesModel)


@feature("responses (the default): output_type")
async def _():
    await output_type(OpenAIResponsesModel)


@feature("responses (the default): tools")
async def _():
    await tools(OpenAIResponsesModel)


@feature("responses (the default): handoffs")
async def _():
    await handoffs(OpenAIResponsesModel)


main()
