"""The openai package."""

from __future__ import annotations

import asyncio
import json

import openai
from features import KEY, MODEL, SCRIPTED, SMOLLM2, feature, main
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

smollm2 = OpenAI(base_url=f"{SMOLLM2}/v1", api_key=KEY)
scripted = OpenAI(base_url=f"{SCRIPTED}/v1", api_key=KEY)
HELLO = [{"role": "user", "content": "Say hello."}]
BOB = [{"role": "user", "content": "Bob is 30."}]
WEATHER = [{"role": "user", "content": "What is the weather in Paris?"}]
BOTH = [{"role": "user", "content": "What are the weather and time in Paris?"}]
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
        "additionalProperties": False}  # fmt: skip
TOOLS = [
    {"type": "function", "function": {"name": name, "description": says, "parameters": CITY}}
    for name, says in (("get_weather", "The weather of a city."), ("get_time", "The time there."))
]
NAMED = {"type": "function", "function": {"name": "get_weather"}}


class Person(BaseModel):
    name: str
    age: int


def chat(client=smollm2, messages=HELLO, **options):
    """The answer; short ones, where the model has nothing to say."""
    if client is smollm2:
        options = {"max_tokens": 8} | options
    return client.chat.completions.create(model=MODEL, messages=messages, **options)


def calls_of(message):
    return [(c.function.name, json.loads(c.function.arguments)) for c in message.tool_calls or []]


@feature("chat")
def _():
    answer = chat(max_tokens=openai.NOT_GIVEN, max_completion_tokens=8, user="someone")
    assert answer.choices[0].message.content
    assert answer.usage.completion_tokens <= 8
    parts = [{"role": "user", "content": [{"type": "text", "text": "Say hello."}]}]
    assert chat(messages=parts).choices[0].message.content


@feature("chat: a message as a stream, with usage")
def _():
    chunks = list(chat(stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks[:-1])
    assert chunks[-1].usage.completion_tokens <= 8


@feature("chat: `.stream()`")
def _():
    with scripted.chat.completions.stream(model=MODEL, messages=BOB) as stream:
        texts = [e.delta for e in stream if e.type == "content.delta"]
        final = stream.get_final_completion()
    assert "".join(texts) == final.choices[0].message.content != ""


@feature("chat: `n`, whole and as a stream")
def _():
    assert [c.index for c in chat(n=2).choices] == [0, 1]
    assert {c.choices[0].index for c in chat(n=2, stream=True) if c.choices} == {0, 1}


@feature("chat: `stop`, `seed`")
def _():
    first, same = (chat(scripted, BOB, seed=1).choices[0].message.content for _ in range(2))
    assert first == same
    for stop in ("age", ["nothing", "age"]):
        cut = chat(scripted, BOB, stop=stop).choices[0]
        assert (cut.message.content, cut.finish_reason) == ('{"name": "Bob", "', "stop")


@feature("chat: `logprobs`")
def _():
    answer = chat(logprobs=True, top_logprobs=3)
    assert all(len(t.top_logprobs) == 3 for t in answer.choices[0].logprobs.content)


@feature("chat: `.parse()` of a pydantic model")
def _():
    for client in (smollm2, scripted):
        answer = client.chat.completions.parse(
            model=MODEL, messages=BOB, response_format=Person, temperature=0, max_tokens=100
        )
        assert answer.choices[0].message.parsed == Person(name="Bob", age=30)


@feature("chat: JSON mode")
def _():
    answer = chat(scripted, BOB, response_format={"type": "json_object"})
    assert json.loads(answer.choices[0].message.content) == {"name": "Bob", "age": 30}


@feature("chat: tools")
def _():
    choice = chat(scripted, WEATHER, tools=TOOLS).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert calls_of(choice.message) == [("get_weather", {"city": "Paris"})]
    several = chat(scripted, BOTH, tools=TOOLS).choices[0].message
    assert [name for name, _ in calls_of(several)] == ["get_weather", "get_time"]
    one = chat(scripted, BOTH, tools=TOOLS, parallel_tool_calls=False).choices[0].message
    assert len(calls_of(one)) == 1


@feature("chat: `tool_choice`")
def _():
    for choice in ("required", NAMED):
        for client in (scripted, smollm2):
            answer = chat(client, WEATHER, tools=TOOLS, tool_choice=choice, max_tokens=32,
                          temperature=0)  # fmt: skip
            names = [c.function.name for c in answer.choices[0].message.tool_calls]
            assert set(names) <= {"get_weather", "get_time"}
            assert choice == "required" or names == ["get_weather"]
    none = chat(scripted, WEATHER, tools=TOOLS, tool_choice="none").choices[0].message
    assert none.content and not none.tool_calls


@feature("chat: tools as a stream")
def _():
    chunks = list(chat(scripted, WEATHER, tools=TOOLS, stream=True))
    pieces = [c for chunk in chunks for c in chunk.choices[0].delta.tool_calls or []]
    assert pieces[0].id and pieces[0].function.name == "get_weather"
    assert json.loads("".join(p.function.arguments or "" for p in pieces)) == {"city": "Paris"}
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    with scripted.chat.completions.stream(model=MODEL, messages=WEATHER, tools=TOOLS) as stream:
        done = [e for e in stream if e.type == "tool_calls.function.arguments.done"]
    assert [(e.name, json.loads(e.arguments)) for e in done] == [("get_weather", {"city": "Paris"})]


@feature("chat: results of tools, `content: null`")
def _():
    asked = chat(scripted, WEATHER, tools=TOOLS).choices[0].message
    result = {"role": "tool", "tool_call_id": asked.tool_calls[0].id, "content": "22 degrees"}
    for history in ([asked, result], [asked.model_dump(), result]):
        answer = chat(scripted, WEATHER + history, tools=TOOLS).choices[0]
        assert answer.message.content == "It is 22 degrees in Paris."
        assert answer.finish_reason == "stop"


@feature("chat: an answer sent back as `model_dump()`")
def _():
    first = chat().choices[0].message.model_dump()
    assert chat(messages=[*HELLO, first, *HELLO]).choices[0].message.content


@feature("chat: reasoning")
def _():
    asked = [{"role": "user", "content": "What are two and two?"}]
    message = chat(scripted, asked, reasoning_effort="low").choices[0].message
    assert message.content.strip() == "4"
    assert "Two and two are four." in message.reasoning_content
    chunks = chat(scripted, asked, stream=True)
    thought = "".join(getattr(c.choices[0].delta, "reasoning_content", None) or "" for c in chunks)
    assert "Two and two are four." in thought


@feature("chat: fields of OpenAI")
def _():
    for more in (
        {"store": False}, {"metadata": {"a": "b"}},
        {"service_tier": "auto"}, {"reasoning_effort": "low"}, {"modalities": ["text"]},
        {"prediction": None}, {"verbosity": "low"}, {"safety_identifier": "someone"},
        {"prompt_cache_key": "a"}, {"tools": []}, {"functions": []}, {"function_call": "auto"},
        {"parallel_tool_calls": True}, {"logprobs": False, "top_logprobs": 0}, {"seed": -1},
        {"n": None, "stream": None}, {"stream_options": None},
    ):  # fmt: skip
        with about(more):
            assert chat(scripted, BOB, **more).choices[0].message.content is not None
    assert list(chat(scripted, stream=True, stream_options={"include_obfuscation": False}))


@feature("chat: `logit_bias`")
def _():
    answer = chat(logit_bias={"28": 100}, max_tokens=3, temperature=0)
    assert answer.choices[0].message.content == ",,,"


@feature("chat: fields of vLLM in `extra_body`")
def _():
    assert chat(extra_body={"repetition_penalty": 1.1}).choices[0].message.content
    schema = Person.model_json_schema()
    for more in (
        {"top_k": -1}, {"min_p": 0.1}, {"min_tokens": 2}, {"skip_special_tokens": True},
        {"chat_template_kwargs": {"enable_thinking": False}}, {"add_generation_prompt": True},
        {"prompt_logprobs": 1}, {"length_penalty": 1.0},
    ):  # fmt: skip
        with about(more):
            assert chat(scripted, BOB, extra_body=more).choices[0].message.content is not None
    for more in ({"guided_json": schema}, {"structured_outputs": {"json": schema}}):
        with about(more):
            text = chat(scripted, BOB, extra_body=more).choices[0].message.content
            assert json.loads(text) == {"name": "Bob", "age": 30}
    choice = {"structured_outputs": {"choice": ["yes", "no"]}}
    assert chat(scripted, extra_body=choice).choices[0].message.content in ("yes", "no")


class about:
    """Says which fields an error is about."""

    def __init__(self, fields):
        self._fields = fields

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if error is not None:
            raise AssertionError(f"{self._fields}: {error}") from error


@feature("chat: 50 at a time, whole and as streams")
async def _():
    async with AsyncOpenAI(base_url=f"{SCRIPTED}/v1", api_key=KEY) as client:
        asked = {"model": MODEL, "messages": BOB}
        wholes = await asyncio.gather(
            *(client.chat.completions.create(**asked) for _ in range(50)))  # fmt: skip
        assert all(a.choices[0].message.content for a in wholes)

        async def streamed():
            stream = await client.chat.completions.create(**asked, stream=True)
            return "".join([c.choices[0].delta.content or "" async for c in stream])

        texts = await asyncio.gather(*(streamed() for _ in range(50)))
    assert {*texts} == {wholes[0].choices[0].message.content}


@feature("chat: 400 at a time, with the default retries")
async def _():
    async with AsyncOpenAI(base_url=f"{SCRIPTED}/v1", api_key=KEY) as client:
        answers = await asyncio.gather(
            *(client.chat.completions.create(model=MODEL, messages=BOB) for _ in range(400))
        )
    assert len(answers) == 400


@feature("chat: a stream that is closed, a task that is cancelled, a timeout")
async def _():
    async with AsyncOpenAI(base_url=f"{SMOLLM2}/v1", api_key=KEY) as client:
        asked = {"model": MODEL, "messages": HELLO, "extra_body": {"ignore_eos": True}}
        stream = await client.chat.completions.create(**asked, stream=True)
        async for _ in stream:
            break
        await stream.close()
        task = asyncio.create_task(client.chat.completions.create(**asked))
        await asyncio.sleep(0.3)
        task.cancel()
        hasty = client.with_options(timeout=0.3, max_retries=0)
        try:
            await hasty.chat.completions.create(**asked)
            raise AssertionError("an answer of all tokens in 0.3 s")
        except openai.APITimeoutError:
            pass
        answer = await client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=4)
        assert answer.choices[0].message.content


@feature("completions")
def _():
    prompts = ["The sky is", "Grass is", "Snow is"]
    answer = smollm2.completions.create(model=MODEL, prompt=prompts, max_tokens=4, logprobs=5)
    assert [c.index for c in answer.choices] == [0, 1, 2]
    assert len(answer.choices[0].logprobs.top_logprobs[0]) >= 5
    tokens = [504, 6376, 314]
    assert smollm2.completions.create(model=MODEL, prompt=tokens, max_tokens=4).choices[0].text
    stream = smollm2.completions.create(model=MODEL, prompt="The sky", max_tokens=4, stream=True)
    assert "".join(c.choices[0].text for c in stream)


@feature("completions: `echo` with `logprobs`, `max_tokens=0`, `best_of`")
def _():
    asked = {"model": MODEL, "prompt": "The sky is blue", "echo": True}
    echoed = smollm2.completions.create(**asked, max_tokens=0, logprobs=1).choices[0]
    assert echoed.text == "The sky is blue"
    known = echoed.logprobs.token_logprobs
    assert known[0] is None and len(known) == 4 and all(x < 0 for x in known[1:])
    more = smollm2.completions.create(**asked, max_tokens=2, best_of=1, n=1).choices[0]
    assert more.text.startswith("The sky is blue") and len(more.text) > 15


@feature("models: list, retrieve")
def _():
    assert [m.id for m in smollm2.models.list()] == [MODEL]
    assert smollm2.models.retrieve(MODEL).id == MODEL


@feature("responses: whole, as a stream, `.parse()`")
def _():
    answer = smollm2.responses.create(
        model=MODEL, input="Say hello.", instructions="Be brief.", max_output_tokens=16)
    assert answer.output_text and answer.usage.output_tokens <= 16
    events = list(smollm2.responses.create(
        model=MODEL, input=HELLO, max_output_tokens=16, stream=True))
    assert events[0].type == "response.created"
    assert events[-1].type in ("response.completed", "response.incomplete")
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert events[-1].response.output_text == text != ""
    with scripted.responses.stream(model=MODEL, input="Bob is 30.") as stream:
        assert stream.get_final_response().output_text == '{"name": "Bob", "age": 30}'
    parsed = scripted.responses.parse(model=MODEL, input="Bob is 30.", text_format=Person)
    assert parsed.output_parsed == Person(name="Bob", age=30)


@feature("responses: tools, `previous_response_id`")
def _():
    tools = [{"type": "function", **tool["function"], "strict": True} for tool in TOOLS]
    asked = scripted.responses.create(
        model=MODEL, input="What is the weather in Paris?", tools=tools)
    (call,) = (item for item in asked.output if item.type == "function_call")
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "22 degrees"}
    answer = scripted.responses.create(
        model=MODEL, input=[result], tools=tools, previous_response_id=asked.id)
    assert answer.output_text == "It is 22 degrees in Paris."
    history = [{"role": "user", "content": "What is the weather in Paris?"}, *asked.output, result]
    answer = scripted.responses.create(model=MODEL, input=history, tools=tools, store=False)
    assert answer.output_text == "It is 22 degrees in Paris."
    with scripted.responses.stream(model=MODEL, input=history[:1], tools=tools) as stream:
        done = [e for e in stream if e.type == "response.function_call_arguments.done"]
    assert json.loads(done[0].arguments) == {"city": "Paris"}


@feature("errors: another model, a prompt too long, embeddings")
def _():
    for code, kind, ask in (
        ("model_not_found", openai.NotFoundError,
         lambda: smollm2.chat.completions.create(model="other", messages=HELLO)),
        ("context_length_exceeded", openai.BadRequestError,
         lambda: chat(messages=[{"role": "user", "content": "word " * 20_000}])),
    ):  # fmt: skip
        try:
            ask()
            raise AssertionError(code)
        except kind as e:
            assert e.code == code, e
    try:
        smollm2.embeddings.create(model=MODEL, input="a")
        raise AssertionError("embeddings of a model of text")
    except openai.NotFoundError:
        pass


main()
