"""How the tokens of a request are sampled, and when the request ends. Invalid values are errors.

The kernel samples; request.py makes its arguments from these parameters."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import isfinite
from types import MappingProxyType
from typing import Any

from ...errors import BadParameter
from ..model.step_limits import MAX_BIASES
from ..runner.batch_arrays import LogitsChange, TokenChoice, chance

MAX_LOGPROBS = 20
MAX_STOP = 1024  # characters: what may be the begin of a stop is looked at with every token
MAX_GRAMMAR = 1 << 17  # characters; twice as many for schemas and rules together
MAX_CHOICE = 1024  # characters of one
_LIKELIEST = TokenChoice()
_GRAMMARS = ("json_schema", "regex", "choice", "grammar")  # an answer keeps to one of them
_OTHER_NAMES = {"top_k": 0, "seed": None}  # of what other servers call -1


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """Tokens are drawn from softmax(logits / temperature); temperature 0 takes the likeliest. Of
    all tokens these are kept: the `top_k` likeliest (0 or -1: all), those with at least `min_p`
    times the largest p, and of what is left the likeliest that have the share `top_p` of it. `seed`
    and the position decide what is drawn; None or -1 is a new seed for every request. All of it is
    done in the kernel, in f32: what differs by less than 2^-18 of log p counts as equal.

    Before that logits are changed: those of tokens in `logit_bias` get its numbers added. Then
    those of tokens in prompt or answer are divided by `repetition_penalty` (multiplied, if
    negative), and those of tokens in the answer lose `presence_penalty`, and `frequency_penalty`
    for each time that they are in it.

    A request ends at the model's own last token (unless `ignore_eos`), at one of `stop_token_ids`,
    where a text of `stop` begins (neither is part of the answer), or after `max_tokens` (None: when
    the context is full). Before `min_tokens` tokens no such token is chosen, unless a grammar has
    nothing else, and no text of `stop` counts that is complete by then. `logprobs` asks for log p
    of each token, and of so many likeliest ones, by the logits as the model gave them;
    `prompt_logprobs` asks the same for the tokens of the prompt, and with it `max_tokens` may be 0:
    there is no answer then. The text of an answer has its special tokens only without
    `skip_special_tokens`.

    With `json_schema` (a schema, or its text) the answer is a JSON text that keeps to it, with
    `regex` a text that matches it whole, with `choice` one of its texts, and with `grammar` a text
    that it makes: other tokens are not chosen. A grammar is written in llguidance's form of Lark;
    it may also be a GBNF text, or a JSON object with `grammars`."""

    max_tokens: int | None = None
    min_tokens: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    stop: str | Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = field(default=None, hash=False)
    json_schema: str | Mapping[str, Any] | None = None
    regex: str | None = None
    choice: Sequence[str] | None = None
    grammar: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.json_schema, Mapping):
            object.__setattr__(self, "json_schema", _text("json_schema", self.json_schema))
        for name, value in _OTHER_NAMES.items():
            if _is(getattr(self, name), -1):
                object.__setattr__(self, name, value)
        if isinstance(self.logit_bias, Mapping):
            some = MappingProxyType(dict(self.logit_bias)) if self.logit_bias else None
            object.__setattr__(self, "logit_bias", some)
        if self.choice is not None and not isinstance(self.choice, str):
            object.__setattr__(self, "choice", _frozen("choice", self.choice))
        stops = (self.stop,) if isinstance(self.stop, str) else self.stop
        object.__setattr__(self, "stop", _frozen("stop", stops))
        object.__setattr__(self, "stop_token_ids", _frozen("stop_token_ids", self.stop_token_ids))
        for each in fields(self):
            value, (fine, wanted) = getattr(self, each.name), _RULES[each.name]
            if not fine(value):
                raise BadParameter(f"{each.name} is {_shown(value)}", hint=f"it must be {wanted}")
        if len(self._grammars) + self.ignore_eos > 1:
            more = "ignore_eos" if self.ignore_eos else self._grammars[1]
            raise BadParameter(f"{self._grammars[0]} and {more} are both given",
                               hint="an answer keeps to one grammar, and ends with it")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise BadParameter(f"min_tokens is {self.min_tokens}, above max_tokens",
                               hint=f"it must be 0 to {self.max_tokens} here")
        if self.max_tokens == 0 and self.prompt_logprobs is None:
            raise BadParameter("max_tokens is 0, and no prompt_logprobs are asked for",
                               hint="max_tokens must be 1 or more where there is an answer")

    @property
    def stops(self) -> tuple[str, ...]:
        return tuple(self.stop)

    @property
    def penalises(self) -> bool:
        """Whether logits are changed by the tokens before."""
        return (self.repetition_penalty != 1 or self.presence_penalty != 0
                or self.frequency_penalty != 0)

    @property
    def has_grammar(self) -> bool:
        return bool(self._grammars)

    @property
    def _grammars(self) -> list[str]:
        return [name for name in _GRAMMARS if getattr(self, name) is not None]

    def next_choice(
        self, seed: int, position: int, change: LogitsChange | None = None
    ) -> TokenChoice:
        """For the token after this position, as the kernel takes it."""
        if self.temperature == 0:
            return _LIKELIEST if change is None else TokenChoice(change=change)
        return TokenChoice(self.temperature, self.top_k, self.top_p, chance(seed, position),
                           self.min_p, change)


def _frozen(name: str, values: Any) -> tuple[Any, ...]:
    try:
        return tuple(values)
    except TypeError:
        raise BadParameter(f"{name} is {_shown(values)}", hint="it must be a list") from None


def _shown(value: Any) -> str:
    """Its begin: a client may have sent megabytes."""
    text = repr(value[:200] if isinstance(value, (str, tuple)) else value)
    return text if len(text) <= 200 else f"{text[:200]} .."


def _text(name: str, value: Any) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError) as e:
        raise BadParameter(f"{name} is no JSON: {e}", hint="it must be a JSON schema") from None


def _is_schema(text: object) -> bool:
    if not isinstance(text, str) or len(text) > MAX_GRAMMAR:
        return False
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _are_biases(given: Any) -> bool:
    return (isinstance(given, Mapping) and len(given) <= MAX_BIASES
            and all(type(t) is int and t >= 0 and _number(b) and abs(b) <= 100
                    for t, b in given.items()))


def _are_choices(texts: Any) -> bool:
    return (isinstance(texts, tuple) and 1 <= len(texts) <= 1024
            and all(isinstance(x, str) and 1 <= len(x) <= MAX_CHOICE for x in texts)
            and sum(map(len, texts)) <= MAX_GRAMMAR)


# ---- what each must be -----------------------------------------------------------------------

Rule = tuple[Callable[[Any], bool], str]


def _whole(low: int, high: int, more: str = "") -> Rule:
    text = f"a whole number of {low} to {high if high < 1 << 31 else f'2^{high.bit_length()} - 1'}"
    return lambda x: type(x) is int and low <= x <= high, f"{text}{more}"


def _real(low: float, high: float) -> Rule:
    return lambda x: _number(x) and low <= x <= high, f"a number of {low:g} to {high:g}"


def _above(low: float, high: float) -> Rule:
    return (lambda x: _number(x) and low < x <= high,
            f"a number above {low:g}, {high:g} at most")


def _or_none(rule: Rule) -> Rule:
    return lambda x: x is None or rule[0](x), f"{rule[1]}, or None"


def _all(rule: Callable[[Any], bool], most: int, what: str) -> Rule:
    return lambda xs: len(xs) <= most and all(map(rule, xs)), f"up to {most} {what}"


def _is(x: object, number: int) -> bool:
    return type(x) is int and x == number


def _number(x: object) -> bool:
    return type(x) in (int, float) and isfinite(x)  # type: ignore[arg-type]


_I31, _U64 = (1 << 31) - 1, (1 << 64) - 1
_RULES: dict[str, Rule] = {
    "max_tokens": _or_none(_whole(0, _I31)),
    "min_tokens": _whole(0, _I31),
    "temperature": _real(0, 100),
    "top_k": _whole(0, _I31, " (0: all tokens)"),
    "top_p": _above(0, 1),
    "min_p": _real(0, 1),
    "seed": _or_none(_whole(0, _U64)),
    "stop": _all(lambda x: isinstance(x, str) and 1 <= len(x) <= MAX_STOP, 16,
                 f"texts of 1 to {MAX_STOP} characters"),
    "stop_token_ids": _all(lambda x: type(x) is int and x >= 0, 64, "numbers of tokens"),
    "ignore_eos": (lambda x: type(x) is bool, "True or False"),
    "skip_special_tokens": (lambda x: type(x) is bool, "True or False"),
    "logprobs": _or_none(_whole(0, MAX_LOGPROBS)),
    "prompt_logprobs": _or_none(_whole(0, MAX_LOGPROBS)),
    "repetition_penalty": _above(0, 10),
    "presence_penalty": _real(-2, 2),
    "frequency_penalty": _real(-2, 2),
    "logit_bias": _or_none((_are_biases, f"-100 to 100 for up to {MAX_BIASES} numbers of tokens")),
    "json_schema": _or_none((_is_schema, f"a JSON schema of up to {MAX_GRAMMAR} characters")),
    "regex": _or_none((lambda x: isinstance(x, str) and 1 <= len(x) <= MAX_GRAMMAR,
                        f"a regular expression of up to {MAX_GRAMMAR} characters")),
    "choice": _or_none((_are_choices, f"1 to 1024 texts of 1 to {MAX_CHOICE} characters, of up to "
                        f"{MAX_GRAMMAR} together")),
    "grammar": _or_none((lambda x: isinstance(x, str) and 1 <= len(x) <= 2 * MAX_GRAMMAR,
                         f"a grammar of up to {2 * MAX_GRAMMAR} characters")),
}
