"""smolagents."""

from __future__ import annotations

from features import KEY, MODEL, SCRIPTED, SMOLLM2, feature, main
from smolagents import CodeAgent, OpenAIServerModel, ToolCallingAgent, tool

HELLO = [{"role": "user", "content": "Say hello."}]
WEATHER = "What is the weather in Paris?"


def model(address: str, **more) -> OpenAIServerModel:
    return OpenAIServerModel(MODEL, api_base=f"{address}/v1", api_key=KEY, **more)


@tool
def get_weather(city: str) -> str:
    """The weather of a city.

    Args:
        city: Its name.
    """
    return f"22 degrees in {city}"


@feature("generate")
def generate():
    answer = model(SMOLLM2).generate(HELLO, max_tokens=8)
    assert answer.content
    assert answer.token_usage.output_tokens <= 8


@feature("generate_stream")
def generate_stream():
    pieces = model(SMOLLM2).generate_stream(HELLO, max_tokens=8)
    assert "".join(p.content or "" for p in pieces)


@feature("stop_sequences")
def stop_sequences():
    answer = model(SMOLLM2).generate(HELLO, stop_sequences=["e", "o"], max_tokens=20)
    assert "e" not in answer.content


@feature("tools")
def tools():
    answer = model(SCRIPTED).generate(
        [{"role": "user", "content": WEATHER}], tools_to_call_from=[get_weather]
    )
    (call,) = answer.tool_calls
    assert call.function.name == "get_weather"


@feature("ToolCallingAgent")
def tool_calling_agent():
    agent = ToolCallingAgent([get_weather], model(SCRIPTED), max_steps=3, verbosity_level=0)
    assert agent.run(WEATHER) == "It is 22 degrees in Paris."


@feature("CodeAgent")
def code_agent():
    agent = CodeAgent([get_weather], model(SCRIPTED), max_steps=2, verbosity_level=0)
    assert agent.run("Get the weather, in Python code.") == "22 degrees in Paris"


@feature("CodeAgent, whose prompt is long, with SmolLM2")
def small_code_agent():
    agent = CodeAgent([], model(SMOLLM2, max_tokens=16), max_steps=1, verbosity_level=0)
    result = agent.run("What is 2 + 2?", return_full_result=True)
    assert result.token_usage.input_tokens > 2048


main()
