"""A runner whose tokens are what rules say, with the tokenizer of a real model. Grammars are
obeyed: the likeliest token is the one that a rule wants, then come those that JSON may want."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from eventtensor.llm.runner.batch_arrays import RunnerLimits
from eventtensor.llm.text.tokenizer import Tokenizer
from tests.clients.scripted.scripted_rules import Rule
from tests.engine.fake_runner import FakeRunner

_USER, _RESULT = "<|im_start|>user\n", "<tool_response>"
_ANSWER = re.compile(r"<\|im_start\|>assistant\n(<think>\n\n</think>\n\n)?")
_TURN = re.compile(re.escape(_USER) + f"(?!{_RESULT})")
_TOOLS = re.compile(r"<tools>\n(.*?)\n</tools>", re.DOTALL)
_KEY = re.compile(r'"(\w+)"\s*:\s*([^{}\[\]]*)$')  # the last one, and its value so far
_NEXT = '}]":,{[0tn'  # what JSON may go on with, the shortest way first


class ScriptedRunner(FakeRunner):
    def __init__(self, limits: RunnerLimits, tokenizer: Tokenizer, rules: Sequence[Rule]) -> None:
        super().__init__(limits)
        self._tokenizer, self._rules = tokenizer, rules

    def _logits(self, seen: np.ndarray) -> np.ndarray:
        text = self._tokenizer.decode(seen.tolist(), special=True)
        found, high = np.zeros(self.limits.vocab, np.float32), 10_000.0
        for token in self._wanted(text):
            if not found[token]:
                found[token], high = high, high - 100
        return found

    def _wanted(self, text: str) -> Iterator[int]:
        """The tokens that may come next, the best first."""
        begins = [m.end() for m in _ANSWER.finditer(text)]
        prompt, answer = (text[: begins[-1]], text[begins[-1] :]) if begins else (text, None)
        turn = [prompt[m.start() :] for m in _TURN.finditer(prompt)][-1:] or [prompt]
        rule = next(r for r in self._rules if re.search(r.when, turn[0]))
        for said in candidates(rule, offered(prompt), turn[0].count(_RESULT)):
            rest = after(prompt, said) if answer is None else left(said, answer)
            if rest is not None:
                yield from self._first(rest)
        if (m := _KEY.search(text)) and m[1] in rule.values:
            rest = left(json.dumps(rule.values[m[1]]), m[2])
            if rest:
                yield from self._first(rest)
        yield from self._tokenizer.eos
        for letter in _NEXT:
            yield from self._first(letter)

    def _first(self, text: str) -> Iterator[int]:
        """Tokens that the text may begin with, the longest first."""
        if not text:
            yield from self._tokenizer.eos
        for end in range(min(len(text), 24), 0, -1):
            if (token := self._ids.get(text[:end])) is not None:
                yield token

    @cached_property
    def _ids(self) -> dict[str, int]:
        texts = [self._tokenizer.decode([k]) for k in range(self._tokenizer.vocab)]
        return {text: k for k, text in reversed(list(enumerate(texts))) if text}


def offered(prompt: str) -> dict[str, Mapping[str, Any]]:
    """The tools that a prompt tells of, with the schemas of their arguments."""
    tools = [json.loads(line) for m in _TOOLS.finditer(prompt) for line in m[1].splitlines()]
    return {t["function"]["name"]: t["function"].get("parameters") or {} for t in tools}


def candidates(rule: Rule, tools: Mapping[str, Any], results: int) -> Iterator[str]:
    """What the model may want to say after so many results of tools, the best first."""
    steps = [s for step in rule.calls if (s := _names(step, tools))]
    made = 0
    for step in steps:
        if made >= results:
            yield "\n".join(_call(name, rule, tools[name]) for name in step)
            break
        made += len(step)
    yield rule.text
    yield json.dumps(dict(rule.values))


def _names(step: str | Sequence[str], tools: Mapping[str, Any]) -> list[str]:
    patterns = [step] if isinstance(step, str) else step
    return [n for p in patterns if (n := next((t for t in tools if re.fullmatch(p, t)), None))]


def _call(name: str, rule: Rule, schema: Mapping[str, Any]) -> str:
    known = {k: rule.values[k] for k in schema.get("properties") or {} if k in rule.values}
    call = {"name": name, "arguments": known}
    return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"


def after(prompt: str, said: str) -> str:
    """What is left of a text, of which a prompt without turns may have the begin already."""
    begun = next(k for k in range(len(said), -1, -1) if prompt.endswith(said[:k]))
    return said[begun:]


def left(text: str, answer: str) -> str | None:
    """What is left of a text after an answer that may have other blanks; None if it says something
    else."""
    at = 0
    for letter in answer:
        if letter.isspace():
            continue
        while at < len(text) and text[at].isspace():
            at += 1
        if at == len(text) or text[at] != letter:
            return None
        at += 1
    rest = text[at:]
    return rest.lstrip() if answer[-1:].isspace() else rest
