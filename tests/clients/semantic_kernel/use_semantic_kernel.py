"""Semantic Kernel, with OpenAIChatCompletion."""

from __future__ import annotations

from typing import Annotated

from features import KEY, MODEL, SCRIPTED, SMOLLM2, feature, main
from openai import AsyncOpenAI
from pydantic import BaseModel
from semantic_kernel import Kernel
from semantic_kernel.connectors.ai import FunctionChoiceBehavior
from semantic_kernel.connectors.ai.open_ai import (
    OpenAIChatCompletion,
    OpenAIChatPromptExecutionSettings,
)
from semantic_kernel.contents import ChatHistory
from semantic_kernel.functions import kernel_function


class Person(BaseModel):
    name: str
    age: int


class Weather:
    def __init__(self) -> None:
        self.asked = []

    @kernel_function
    def get_weather(self, city: Annotated[str, "Its name"]) -> str:
        """The weather of a city."""
        self.asked.append(city)
        return f"22 degrees in {city}"


def service(address: str) -> OpenAIChatCompletion:
    client = AsyncOpenAI(base_url=f"{address}/v1", api_key=KEY)
    return OpenAIChatCompletion(ai_model_id=MODEL, async_client=client)


def history(text: str) -> ChatHistory:
    told = ChatHistory()
    told.add_user_message(text)
    return told


@feature("chat")
async def chat():
    settings = OpenAIChatPromptExecutionSettings(max_tokens=8)
    answer = await service(SMOLLM2).get_chat_message_content(history("Say hello."), settings)
    assert answer.content


@feature("stream")
async def stream():
    settings = OpenAIChatPromptExecutionSettings(max_tokens=8)
    chat = service(SMOLLM2)
    pieces = [
        p async for p in chat.get_streaming_chat_message_content(history("Say hello."), settings)
    ]
    assert "".join(p.content for p in pieces)


@feature("response_format")
async def response_format():
    settings = OpenAIChatPromptExecutionSettings(response_format=Person)
    answer = await service(SCRIPTED).get_chat_message_content(history("Bob is 30."), settings)
    assert Person.model_validate_json(answer.content) == Person(name="Bob", age=30)


@feature("FunctionChoiceBehavior.Auto")
async def functions():
    await _with_functions(FunctionChoiceBehavior.Auto())


@feature("FunctionChoiceBehavior.Required")
async def required_functions():
    await _with_functions(FunctionChoiceBehavior.Required())


@feature("FunctionChoiceBehavior.Auto, streamed")
async def streamed_functions():
    kernel, weather = Kernel(), Weather()
    kernel.add_plugin(weather, plugin_name="weather")
    settings = OpenAIChatPromptExecutionSettings(
        function_choice_behavior=FunctionChoiceBehavior.Auto()
    )
    pieces = [
        p
        async for p in service(SCRIPTED).get_streaming_chat_message_content(
            history("What is the weather in Paris?"), settings, kernel=kernel
        )
    ]
    assert weather.asked == ["Paris"]
    assert "".join(p.content or "" for p in pieces) == "It is 22 degrees in Paris."


async def _with_functions(behavior: FunctionChoiceBehavior) -> None:
    kernel, weather = Kernel(), Weather()
    kernel.add_plugin(weather, plugin_name="weather")
    settings = OpenAIChatPromptExecutionSettings(function_choice_behavior=behavior)
    answer = await service(SCRIPTED).get_chat_message_content(
        history("What is the weather in Paris?"), settings, kernel=kernel
    )
    assert weather.asked == ["Paris"]
    assert answer.content == "It is 22 degrees in Paris."


main()
