"""The fields that decide how tokens are chosen, in both of OpenAI's older APIs: they become
`SamplingParams`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, ClassVar, Literal, assert_never

from pydantic import Field

from ..engine.sampling_params import SamplingParams
from ..errors import BadParameter
from .strict_body import Body, Few, Name, Neutral

MOST_CHOICES = 16


class StreamOptions(Body):
    """`continuous_usage_stats`: the usage so far in every chunk."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    accepted: ClassVar[Mapping[str, Neutral]] = {
        "include_obfuscation": Neutral("it pads chunks against listeners, and there is no padding"),
    }


class TextFormat(Body):
    type: Literal["text"]


class ObjectFormat(Body):
    type: Literal["json_object"]


class Schema(Body):
    """Of OpenAI's fields one decides: answers always keep to the schema."""

    name: str | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None


class SchemaFormat(Body):
    type: Literal["json_schema"]
    json_schema: Schema


class RegexFormat(Body):
    type: Literal["regex"]
    pattern: str


Format = Annotated[TextFormat | ObjectFormat | SchemaFormat | RegexFormat,
                   Field(discriminator="type")]


class StructuredOutputs(Body):
    """As vLLM takes them; one of them is given."""

    json_: dict[str, Any] | str | None = Field(None, alias="json")
    regex: str | None = None
    choice: Annotated[list[str], Few(1 << 12)] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    accepted: ClassVar[Mapping[str, Neutral]] = {
        "disable_any_whitespace": Neutral("blanks between the parts of JSON are bounded", (False,)),
        "disable_fallback": Neutral("there is one way to keep to a grammar"),
        "disable_additional_properties": Neutral("the server decides it for all schemas"),
        "whitespace_pattern": Neutral("blanks between the parts of JSON are bounded"),
        "_backend": Neutral("there is one way to keep to a grammar"),
        "_backend_was_auto": Neutral("there is one way to keep to a grammar"),
    }
    refused: ClassVar[Mapping[str, str]] = {
        "structural_tag": "tools are asked for by `tools`",
    }

    def as_params(self) -> dict[str, Any]:
        return {"json_schema": {"type": "object"} if self.json_object else self.json_,
                "regex": self.regex, "choice": self.choice, "grammar": self.grammar}


_ONE_BACKEND = Neutral("there is one way to keep to a grammar")
_ONLY_BEAMS = "only beam search has it, and there is none"


class SamplingFields(Body):
    """None, where it is allowed, is as good as nothing."""

    model: Name
    n: int | None = Field(None, ge=1, le=MOST_CHOICES)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: str | Annotated[list[str], Few(16)] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    # Beyond OpenAI's, by the names that vLLM gave them.
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    stop_token_ids: Annotated[list[int], Few(64)] | None = None
    ignore_eos: bool | None = None
    min_tokens: int | None = None
    skip_special_tokens: bool | None = None
    prompt_logprobs: int | None = None
    response_format: Format | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_regex: str | None = None
    guided_choice: Annotated[list[str], Few(1 << 12)] | None = None
    guided_grammar: str | None = None
    # sglang's.
    regex: str | None = None
    json_schema: str | None = None
    ebnf: str | None = None
    accepted: ClassVar[Mapping[str, Neutral]] = {
        "user": Neutral("everybody gets the same answers"),
        "metadata": Neutral("it is for lists of what was stored"),
        "store": Neutral("nothing is stored, so there is nothing to look up later"),
        "service_tier": Neutral("all requests have one tier"),
        "safety_identifier": Neutral("everybody gets the same answers"),
        "prompt_cache_key": Neutral("the prefix cache finds equal prompts by itself"),
        "prompt_cache_retention": Neutral("the prefix cache finds equal prompts by itself"),
        "prediction": Neutral("it would only make answers faster"),
        "best_of": Neutral("each answer that is made is given: best_of is n"),
        "length_penalty": Neutral(_ONLY_BEAMS, (1, 1.0)),
        "early_stopping": Neutral(_ONLY_BEAMS, (False,)),
        "use_beam_search": Neutral("there is no beam search", (False,)),
        "spaces_between_special_tokens": Neutral("texts of tokens have no blanks between them"),
        "include_stop_str_in_output": Neutral("answers end before the text of a stop", (False,)),
        "detokenize": Neutral("answers are text", (True,)),
        "request_id": Neutral("x-request-id names a request"),
        "priority": Neutral("requests are taken in the order in which they come", (0,)),
        "cache_salt": Neutral("it only splits the prefix cache"),
        "guided_decoding_backend": _ONE_BACKEND,
        "guided_whitespace_pattern": _ONE_BACKEND,
        "return_tokens_as_token_ids": Neutral("tokens are told as text", (False,)),
        "return_token_ids": Neutral("tokens are told as text", (False,)),
    }
    refused: ClassVar[Mapping[str, str]] = {
        "logits_processors": "code of clients is not run",
        "truncate_prompt_tokens": "a prompt that is too long is an error, and never cut",
        "bad_words": "logit_bias keeps tokens away",
        "allowed_token_ids": "a grammar says which tokens may come",
    }

    @property
    def count(self) -> int:
        """Of answers to each prompt."""
        return self.n or 1

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def wants_usage_so_far(self) -> bool:
        return self.wants_usage and bool(
            self.stream_options and self.stream_options.continuous_usage_stats)

    def params(self, **known: Any) -> list[SamplingParams]:
        """For each of the n choices. With a seed every choice has one of its own."""
        if self.prompt_logprobs is not None and self.stream:
            raise BadParameter("prompt_logprobs is given, and stream is true",
                               hint="they are in whole answers only; completions stream them with "
                               "echo and logprobs")
        names = {f.name for f in fields(SamplingParams)} & type(self).model_fields.keys()
        given = ({name: getattr(self, name) for name in names - {"regex", "json_schema"}}
                 | {"logit_bias": _biases(self.logit_bias)} | self._grammar() | known)
        used = {name: value for name, value in given.items() if value is not None}
        if unknown := used.keys() - {f.name for f in fields(SamplingParams)}:
            raise BadParameter(f"{min(unknown)} is not supported")
        best_of = (self.model_extra or {}).get("best_of")
        if best_of is not None and best_of != self.count:
            raise BadParameter(f"best_of is {best_of!r}, but n is {self.count}",
                               hint="leave best_of away: each answer that is made is given")
        if self.seed is None or self.seed < 0:
            return [SamplingParams(**used)] * self.count
        return [SamplingParams(**used | {"seed": self.seed + k}) for k in range(self.count)]

    def _grammar(self) -> dict[str, Any]:
        """The one that is asked for, by whichever field; some clients give it by two."""
        vllm = {} if self.structured_outputs is None else self.structured_outputs.as_params()
        asked = [
            _of_format(self.response_format), vllm,
            {"json_schema": self.guided_json, "regex": self.guided_regex,
             "choice": self.guided_choice, "grammar": self.guided_grammar},
            {"json_schema": self.json_schema, "regex": self.regex, "grammar": self.ebnf},
        ]
        found = [(k, v) for group in asked for k, v in group.items() if v is not None]
        if any(one != found[0] for one in found):
            raise BadParameter("more than one grammar is given for the answer",
                               hint="give one of response_format, structured_outputs, guided_*, "
                               "regex, json_schema and ebnf")
        return dict(found)


def _of_format(asked: Format | None) -> dict[str, Any]:
    match asked:
        case ObjectFormat():
            return {"json_schema": {"type": "object"}}
        case SchemaFormat(json_schema=schema):
            return {"json_schema": schema.schema_}
        case RegexFormat(pattern=pattern):
            return {"regex": pattern}
        case TextFormat() | None:
            return {}
        case other:
            assert_never(other)


def _biases(given: Mapping[str, float] | None) -> dict[int, float] | None:
    """JSON has no numbers as keys."""
    if not given:
        return None
    try:
        return {int(token): bias for token, bias in given.items()}
    except ValueError:
        raise BadParameter("logit_bias has a key that is no number of a token",
                           hint='as in {"42": -100}') from None
