"""llm, the command of that name, with the models of extra-openai-models.yaml."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from features import KEY, MODEL, SCRIPTED, SMOLLM2, feature, main

FOLDER = Path.cwd()
FUNCTION = """
def get_weather(city: str) -> str:
    "The weather of a city."
    return "22 degrees in " + city
"""

MODELS = [
    {
        "model_id": name,
        "model_name": MODEL,
        "api_base": f"{address}/v1",
        "supports_schema": True,
        "supports_tools": True,
        **more,
    }
    for name, address, more in [
        ("smollm2", SMOLLM2, {}),
        ("smollm2-text", SMOLLM2, {"completion": True}),
        ("scripted", SCRIPTED, {}),
    ]
]
# JSON is YAML.
(FOLDER / "extra-openai-models.yaml").write_text(json.dumps(MODELS))


def llm(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "llm", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "LLM_USER_PATH": str(FOLDER), "OPENAI_API_KEY": KEY},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@feature("prompt")
def prompt():
    assert llm("-m", "smollm2", "-o", "max_tokens", "8", "Say hello.")


@feature("--no-stream")
def no_stream():
    assert llm("-m", "smollm2", "-o", "max_tokens", "8", "--no-stream", "Say hello.")


@feature("-s and -c")
def continued():
    llm("-m", "smollm2", "-o", "max_tokens", "8", "-s", "You are a poet.", "Say hello.")
    assert llm("-m", "smollm2", "-o", "max_tokens", "8", "-c", "Again.")


@feature("options")
def options():
    given = "temperature 0.5 top_p 0.9 seed 3 stop z frequency_penalty 0.1 presence_penalty 0.1"
    names = iter([*given.split(), "max_tokens", "8"])
    words = [w for name in names for w in ("-o", name, next(names))]
    assert llm("-m", "smollm2", *words, "Say hello.")


@feature("-o logit_bias")
def logit_bias():
    assert llm("-m", "smollm2", "-o", "max_tokens", "8", "-o", "logit_bias", '{"28": -100}', "Hi.")


@feature("completion model")
def completion():
    assert llm("-m", "smollm2-text", "-o", "max_tokens", "8", "The sky is")


@feature("--schema")
def schema():
    text = llm("-m", "scripted", "--schema", "name, age int", "Bob is 30.")
    assert json.loads(text) == {"name": "Bob", "age": 30}


@feature("--schema with SmolLM2")
def small_schema():
    text = llm("-m", "smollm2", "-o", "max_tokens", "80", "--schema", "name, age int", "Bob is 30.")
    assert json.loads(text).keys() == {"name", "age"}


@feature("-T tool")
def tools():
    text = llm("-m", "scripted", "--functions", FUNCTION, "What is the weather in Paris?")
    assert text.endswith("It is 22 degrees in Paris."), text


@feature("openai endpoint --responses")
def responses():
    where = ["openai", "endpoint", f"{SMOLLM2}/v1", "--key", KEY, "-m", MODEL, "--responses"]
    assert llm(*where, "-o", "max_tokens", "16", "Say hello.")


main()
