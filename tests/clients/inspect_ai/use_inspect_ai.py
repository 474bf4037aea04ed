"""Inspect."""

from __future__ import annotations

from features import KEY, MODEL, SCRIPTED, SMOLLM2, feature, main
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig, ResponseSchema, get_model
from inspect_ai.scorer import choice, includes
from inspect_ai.solver import generate, multiple_choice, use_tools
from inspect_ai.tool import tool
from inspect_ai.util import json_schema
from pydantic import BaseModel

smollm2 = get_model(f"openai-api/smollm2/{MODEL}", base_url=f"{SMOLLM2}/v1", api_key=KEY)
scripted = get_model(f"openai-api/scripted/{MODEL}", base_url=f"{SCRIPTED}/v1", api_key=KEY)


class Person(BaseModel):
    name: str
    age: int


@tool
def get_weather():
    async def execute(city: str) -> str:
        """The weather of a city.

        Args:
            city: Its name.
        """
        return "22 degrees"

    return execute


def asking(prompt, target, **options):
    options = {"solver": generate()} | options
    return Task([Sample(prompt, target=target)], scorer=includes(), **options)


def run(task, model, **config):
    (log,) = eval(task, model=model, display="none", log_dir="logs", **config)
    assert log.status == "success", log.error
    return log


@feature("generate, multiple_choice")
def _():
    run(asking("Say hello.", "hello"), smollm2, max_tokens=8)
    sample = Sample("What is a cat?", choices=["an animal", "a stone"], target="A")
    run(Task([sample], solver=multiple_choice(), scorer=choice()), smollm2, max_tokens=8)


@feature("logprobs, seed, num_choices")
def _():
    config = {"logprobs": True, "top_logprobs": 2, "seed": 1, "num_choices": 2, "max_tokens": 8}
    log = run(asking("Say hello.", "hello"), smollm2, **config)
    choices = log.samples[0].output.choices
    assert len(choices) == 2 and choices[0].logprobs.content


@feature("logit_bias")
def _():
    log = run(asking("Say hello.", ","), smollm2, logit_bias={28: 100}, max_tokens=3, temperature=0)
    assert log.samples[0].output.completion == ",,,"


@feature("response_schema")
def _():
    schema = ResponseSchema(name="person", json_schema=json_schema(Person))
    task = asking("Bob is 30.", "Bob", config=GenerateConfig(response_schema=schema))
    person = Person.model_validate_json(run(task, scripted).samples[0].output.completion)
    assert person == Person(name="Bob", age=30)


@feature("tools")
def _():
    solver = [use_tools(get_weather()), generate()]
    task = asking("What is the weather in Paris?", "22", solver=solver)
    log = run(task, scripted)
    assert log.samples[0].output.completion == "It is 22 degrees in Paris."
    assert [m.role for m in log.samples[0].messages] == ["user", "assistant", "tool", "assistant"]


@feature("a sample too long ends with model_length")
def _():
    log = run(asking("word " * 20_000, "a"), smollm2)
    assert log.samples[0].output.stop_reason == "model_length"


main()
