"""Pydantic AI."""

from __future__ import annotations

from features import KEY, MODEL, SCRIPTED, SMOLLM2, feature, main
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, PromptedOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings


def model(url, kind=OpenAIChatModel):
    return kind(MODEL, provider=OpenAIProvider(base_url=f"{url}/v1", api_key=KEY))


SHORT = ModelSettings(max_tokens=8)


class Person(BaseModel):
    name: str
    age: int


BOB = Person(name="Bob", age=30)


@feature("run, instructions, message_history")
async def _():
    agent = Agent(model(SMOLLM2), instructions="Be brief.", model_settings=SHORT)
    first = await agent.run("Say hello.")
    assert first.output
    again = await agent.run("Say it again.", message_history=first.all_messages())
    assert again.output


@feature("run_stream")
async def _():
    async with Agent(model(SMOLLM2), model_settings=SHORT).run_stream("Say hello.") as result:
        texts = [t async for t in result.stream_text(delta=True)]
    assert "".join(texts)


@feature("output_type: the default (a tool)")
async def _():
    assert (await Agent(model(SCRIPTED), output_type=Person).run("Bob is 30.")).output == BOB
    async with Agent(model(SCRIPTED), output_type=Person).run_stream("Bob is 30.") as result:
        assert await result.get_output() == BOB


@feature("output_type: NativeOutput, PromptedOutput")
async def _():
    for kind in (NativeOutput, PromptedOutput):
        agent = Agent(model(SCRIPTED), output_type=kind(Person))
        assert (await agent.run("Bob is 30.")).output == BOB


def weather_agent(kind, asked):
    """Adds the cities that its tool is asked about."""
    agent = Agent(model(SCRIPTED, kind))

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """The weather of a city."""
        asked.append(city)
        return "22 degrees"

    return agent


@feature("tools")
async def _():
    asked = []
    agent = weather_agent(OpenAIChatModel, asked)
    answer = await agent.run("What is the weather in Paris?")
    assert answer.output == "It is 22 degrees in Paris."
    async with agent.run_stream("What is the weather in Paris?") as result:
        assert await result.get_output() == "It is 22 degrees in Paris."
    assert asked == ["Paris", "Paris"]


@feature("OpenAIResponsesModel: text, tools, output_type")
async def _():
    asked = []
    agent = weather_agent(OpenAIResponsesModel, asked)
    answer = await agent.run("What is the weather in Paris?")
    assert (answer.output, asked) == ("It is 22 degrees in Paris.", ["Paris"])
    agent = Agent(model(SCRIPTED, OpenAIResponsesModel), output_type=Person)
    assert (await agent.run("Bob is 30.")).output == BOB


main()
