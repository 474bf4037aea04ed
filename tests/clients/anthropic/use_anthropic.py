"""The anthropic package."""

from __future__ import annotations

import anthropic
from anthropic import Anthropic
from features import KEY, MODEL, SCRIPTED, SMOLLM2, feature, main

smollm2 = Anthropic(base_url=SMOLLM2, api_key=KEY)
scripted = Anthropic(base_url=SCRIPTED, api_key=KEY)
HELLO = [{"role": "user", "content": "Say hello."}]
WEATHER = [{"role": "user", "content": "What is the weather in Paris?"}]
TOOLS = [{
    "name": "get_weather", "description": "The weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}},
                     "required": ["city"]},
}]  # fmt: skip


def ask(client=scripted, messages=HELLO, **options):
    options = {"max_tokens": 256} | options
    return client.messages.create(model=MODEL, messages=messages, **options)


@feature("messages.create: text, `system`")
def _():
    answer = ask(smollm2, max_tokens=8, system="Be brief.")
    assert answer.content[0].type == "text" and answer.content[0].text
    assert answer.stop_reason in ("max_tokens", "end_turn") and answer.usage.output_tokens <= 8
    parts = [{"role": "user", "content": [{"type": "text", "text": "Say hello."}]}]
    system = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    assert ask(messages=parts, system=system).content[0].text


@feature("messages.create: `stop_sequences`")
def _():
    answer = ask(messages=[{"role": "user", "content": "Bob is 30."}], stop_sequences=["age"])
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", "age")


@feature("messages.create: stream, `.stream()`")
def _():
    asked = {"model": MODEL, "max_tokens": 8, "messages": HELLO}
    kinds = [e.type for e in smollm2.messages.create(**asked, stream=True)]
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop"
    with smollm2.messages.stream(**asked) as stream:
        text = "".join(stream.text_stream)
        assert stream.get_final_message().content[0].text == text != ""


@feature("tools: auto, any, named, none")
def _():
    for choice in ({"type": "auto"}, {"type": "any"}, {"type": "tool", "name": "get_weather"}):
        answer = ask(messages=WEATHER, tools=TOOLS, tool_choice=choice)
        (call,) = (block for block in answer.content if block.type == "tool_use")
        assert (call.name, call.input) == ("get_weather", {"city": "Paris"})
        assert answer.stop_reason == "tool_use"
    answer = ask(messages=WEATHER, tools=TOOLS, tool_choice={"type": "none"})
    assert [block.type for block in answer.content] == ["text"]


@feature("tools: as a stream")
def _():
    with scripted.messages.stream(
        model=MODEL, max_tokens=256, messages=WEATHER, tools=TOOLS
    ) as stream:
        pieces = [e.partial_json for e in stream if e.type == "input_json"]
        final = stream.get_final_message()
    assert pieces and final.content[-1].input == {"city": "Paris"}


@feature("tools: results")
def _():
    asked = ask(messages=WEATHER, tools=TOOLS)
    result = {"type": "tool_result", "tool_use_id": asked.content[-1].id, "content": "22 degrees"}
    history = [
        *WEATHER, {"role": "assistant", "content": asked.content},
        {"role": "user", "content": [result]},
    ]  # fmt: skip
    answer = ask(messages=history, tools=TOOLS)
    assert answer.content[-1].text == "It is 22 degrees in Paris."
    assert answer.stop_reason == "end_turn"


@feature("messages.count_tokens")
def _():
    counted = smollm2.messages.count_tokens(model=MODEL, messages=HELLO)
    assert counted.input_tokens == ask(smollm2, max_tokens=1).usage.input_tokens


@feature("models.list, models.retrieve")
def _():
    assert [m.id for m in smollm2.models.list()] == [MODEL]
    assert smollm2.models.retrieve(MODEL).id == MODEL


@feature("errors: another model, a prompt too long")
def _():
    for kind, ask_wrongly in (
        (anthropic.NotFoundError,
         lambda: smollm2.messages.create(model="other", max_tokens=8, messages=HELLO)),
        (anthropic.BadRequestError,
         lambda: ask(smollm2, [{"role": "user", "content": "word " * 20_000}])),
    ):  # fmt: skip
        try:
            ask_wrongly()
            raise AssertionError("no error")
        except kind as e:
            assert e.body["type"] == "error" and e.body["error"]["type"]


main()
