"""llama-index, with OpenAILike."""

from __future__ import annotations

from features import KEY, MODEL, SCRIPTED, SMOLLM2, feature, main
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel

HELLO = [ChatMessage(role="user", content="Say hello.")]
WEATHER = "What is the weather in Paris?"
BOB = PromptTemplate("Bob is 30.")


class Person(BaseModel):
    name: str
    age: int


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"22 degrees in {city}"


def llm(address: str, **more) -> OpenAILike:
    return OpenAILike(model=MODEL, api_base=f"{address}/v1", api_key=KEY, **more)


@feature("chat")
def chat():
    assert llm(SMOLLM2, is_chat_model=True, max_tokens=8).chat(HELLO).message.content


@feature("stream_chat")
def stream_chat():
    pieces = llm(SMOLLM2, is_chat_model=True, max_tokens=8).stream_chat(HELLO)
    assert "".join(p.delta or "" for p in pieces)


@feature("complete of a chat model")
def complete_chat():
    assert llm(SMOLLM2, is_chat_model=True, max_tokens=8).complete("Say hello.").text


@feature("complete")
def complete():
    assert llm(SMOLLM2, max_tokens=8).complete("The sky is").text


@feature("stream_complete")
def stream_complete():
    pieces = llm(SMOLLM2, max_tokens=8).stream_complete("The sky is")
    assert "".join(p.delta or "" for p in pieces)


@feature("structured_predict by structured outputs")
def structured_outputs():
    model = llm(SCRIPTED, is_chat_model=True, should_use_structured_outputs=True)
    assert model.structured_predict(Person, BOB) == Person(name="Bob", age=30)


@feature("structured_predict by functions")
def structured_functions():
    model = llm(SCRIPTED, is_chat_model=True, is_function_calling_model=True)
    assert model.structured_predict(Person, BOB) == Person(name="Bob", age=30)


@feature("structured_predict without tools")
def structured_text():
    model = llm(SCRIPTED, is_chat_model=True)
    assert model.structured_predict(Person, BOB) == Person(name="Bob", age=30)


@feature("chat_with_tools, predict_and_call")
def chat_with_tools():
    model = llm(SCRIPTED, is_chat_model=True, is_function_calling_model=True)
    tool = FunctionTool.from_defaults(get_weather)
    answer = model.chat_with_tools([tool], user_msg=WEATHER)
    (call,) = model.get_tool_calls_from_response(answer)
    assert (call.tool_name, call.tool_kwargs) == ("get_weather", {"city": "Paris"})
    assert model.predict_and_call([tool], user_msg=WEATHER).response == "22 degrees in Paris"


main()
