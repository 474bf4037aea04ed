"""The sampling fields of OpenAI's chat completions and completions, and their conversion to
`SamplingParams`. Fields of one API alone are in its package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, ClassVar, Literal, assert_never

from pydantic import Field

from ...errors import BadParameter
from ..engine.sampling_params import SamplingParams
from .strict_body import Body, Integer, MaxItems, Name, NoEffect

MAX_CHOICES = 16


class StreamOptions(Body):
    """`continuous_usage_stats` adds the usage so far to every chunk."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    accepted: ClassVar[Mapping[str, NoEffect]] = {
        "include_obfuscation": NoEffect("it pads chunks against listeners; there is no padding"),
    }


class TextFormat(Body):
    type: Literal["text"]


class ObjectFormat(Body):
    type: Literal["json_object"]


class Schema(Body):
    """Answers always follow `schema`, whatever `strict` says."""

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
    """vLLM's field; a request gives one of its members."""

    json_: dict[str, Any] | str | None = Field(None, alias="json")
    regex: str | None = None
    choice: Annotated[list[str], MaxItems(1 << 12)] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    accepted: ClassVar[Mapping[str, NoEffect]] = {
        "disable_any_whitespace": NoEffect("blanks between parts of JSON are bounded", (False,)),
        "disable_fallback": NoEffect("there is one way to keep to a grammar"),
        "disable_additional_properties": NoEffect("the server decides it for all schemas"),
        "whitespace_pattern": NoEffect("blanks between parts of JSON are bounded"),
        "_backend": NoEffect("there is one way to keep to a grammar"),
        "_backend_was_auto": NoEffect("there is one way to keep to a grammar"),
    }
    refused: ClassVar[Mapping[str, str]] = {
        "structural_tag": "the field `tools` describes tools",
    }

    def as_params(self) -> dict[str, Any]:
        return {"json_schema": {"type": "object"} if self.json_object else self.json_,
                "regex": self.regex, "choice": self.choice, "grammar": self.grammar}


_ONE_BACKEND = NoEffect("there is one way to keep to a grammar")
_ONLY_BEAMS = "only beam search has it, and there is none"


class SamplingFields(Body):
    """A field that is None counts as absent."""

    model: Name
    n: Integer | None = Field(None, ge=1, le=MAX_CHOICES)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Integer | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: Integer | None = None
    stop: str | Annotated[list[str], MaxItems(16)] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    # vLLM's fields.
    top_k: Integer | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    stop_token_ids: Annotated[list[Integer], MaxItems(64)] | None = None
    ignore_eos: bool | None = None
    min_tokens: Integer | None = None
    skip_special_tokens: bool | None = None
    prompt_logprobs: Integer | None = None
    response_format: Format | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_regex: str | None = None
    guided_choice: Annotated[list[str], MaxItems(1 << 12)] | None = None
    guided_grammar: str | None = None
    # SGLang's fields.
    regex: str | None = None
    json_schema: str | None = None
    ebnf: str | None = None
    accepted: ClassVar[Mapping[str, NoEffect]] = {
        "user": NoEffect("everybody gets the same answers"),
        "metadata": NoEffect("it is for lists of what was stored"),
        "store": NoEffect("nothing is stored, so there is nothing to look up later"),
        "service_tier": NoEffect("all requests have one tier"),
        "safety_identifier": NoEffect("everybody gets the same answers"),
        "prompt_cache_key": NoEffect("the prefix cache finds equal prompts by itself"),
        "prompt_cache_retention": NoEffect("the prefix cache finds equal prompts by itself"),
        "prediction": NoEffect("it would only make answers faster"),
        "best_of": NoEffect("every generated answer is returned: best_of is n"),
        "length_penalty": NoEffect(_ONLY_BEAMS, (1, 1.0)),
        "early_stopping": NoEffect(_ONLY_BEAMS, (False,)),
        "use_beam_search": NoEffect("there is no beam search", (False,)),
        "spaces_between_special_tokens": NoEffect("texts of tokens have no blanks between them"),
        "include_stop_str_in_output": NoEffect("answers end before the text of a stop", (False,)),
        "detokenize": NoEffect("answers are text", (True,)),
        "request_id": NoEffect("x-request-id names a request"),
        "priority": NoEffect("requests start in the order of their arrival", (0,)),
        "cache_salt": NoEffect("it only splits the prefix cache"),
        "guided_decoding_backend": _ONE_BACKEND,
        "guided_whitespace_pattern": _ONE_BACKEND,
        "return_tokens_as_token_ids": NoEffect("tokens are returned as text", (False,)),
        "return_token_ids": NoEffect("tokens are returned as text", (False,)),
    }
    refused: ClassVar[Mapping[str, str]] = {
        "logits_processors": "code of clients is not run",
        "truncate_prompt_tokens": "a prompt that is too long is an error, and never cut",
        "bad_words": "logit_bias keeps tokens away",
        "allowed_token_ids": "a grammar restricts the tokens",
    }

    @property
    def count(self) -> int:
        """Answers to each prompt."""
        return self.n or 1

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def wants_usage_so_far(self) -> bool:
        return self.wants_usage and bool(
            self.stream_options and self.stream_options.continuous_usage_stats)

    def params(self, **overrides: Any) -> list[SamplingParams]:
        """One for each of the n choices. Choice k has the given seed plus k."""
        if self.prompt_logprobs is not None and self.stream:
            raise BadParameter("prompt_logprobs is given, and stream is true",
                               hint="they are in whole answers only; completions stream them with "
                               "echo and logprobs")
        names = {f.name for f in fields(SamplingParams)} & type(self).model_fields.keys()
        given = ({name: getattr(self, name) for name in names - {"regex", "json_schema"}}
                 | {"logit_bias": _biases(self.logit_bias)} | self._grammar() | overrides)
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
        """The grammar of the answer, from whichever field. Some clients give it in two."""
        vllm = {} if self.structured_outputs is None else self.structured_outputs.as_params()
        sources = [
            _format_grammar(self.response_format), vllm,
            {"json_schema": self.guided_json, "regex": self.guided_regex,
             "choice": self.guided_choice, "grammar": self.guided_grammar},
            {"json_schema": self.json_schema, "regex": self.regex, "grammar": self.ebnf},
        ]
        found = [(k, v) for source in sources for k, v in source.items() if v is not None]
        if any(one != found[0] for one in found):
            raise BadParameter("more than one grammar is given for the answer",
                               hint="give one of response_format, structured_outputs, guided_*, "
                               "regex, json_schema and ebnf")
        return dict(found)


def _format_grammar(format: Format | None) -> dict[str, Any]:
    match format:
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
    """Keys of JSON are text, so they become numbers here."""
    if not given:
        return None
    try:
        return {int(token): bias for token, bias in given.items()}
    except ValueError:
        raise BadParameter("logit_bias has a key that is no number of a token",
                           hint='as in {"42": -100}') from None
