"""What clients may send. An unknown field, or a value of another type, is an error: nothing is
ignored but `user`, which means nothing here."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, assert_never, cast

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema

from ..engine.params import SamplingParams
from ..errors import BadParameter

MOST_CHOICES = 16


@dataclass(frozen=True)
class Few:
    """A list of at most so many items. Its first wrong item is the only one that is told: an error
    for each would cost more than the list."""

    most: int

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        schema: Any = handler(source)
        schema["fail_fast"], schema["max_length"] = True, self.most
        return cast(CoreSchema, schema)


Name = Annotated[str, Field(max_length=1024)]
Tokens = Annotated[list[int], Few(1 << 20)]
Texts = Annotated[list[str], Few(1 << 10)]
ManyTokens = Annotated[list[Tokens], Few(1 << 10)]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, cache_strings="keys")


class StreamOptions(Body):
    include_usage: bool = False


class TextFormat(Body):
    type: Literal["text"]


class ObjectFormat(Body):
    type: Literal["json_object"]


class Schema(Body):
    """Of OpenAI's fields one decides: answers always keep to the schema."""

    name: str
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


class Asked(Body):
    """What both ways of asking have. None, where it is allowed, is as good as nothing."""

    model: Name
    n: int = Field(1, ge=1, le=MOST_CHOICES)
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: str | Annotated[list[str], Few(16)] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    # Beyond OpenAI's, by the names that vLLM gave them.
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    stop_token_ids: Annotated[list[int], Few(64)] | None = None
    ignore_eos: bool | None = None
    response_format: Format | None = None

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    def params(self, **known: Any) -> list[SamplingParams]:
        """For each of the n choices. With a seed every choice has one of its own."""
        names = {f.name for f in fields(SamplingParams)} & type(self).model_fields.keys()
        given = {name: getattr(self, name) for name in names} | self._grammar() | known
        used = {name: value for name, value in given.items() if value is not None}
        if self.stream_options is not None and not self.stream:
            raise BadParameter("stream_options is given, but stream is not true",
                               hint="leave it away, or stream")
        if self.seed is None:
            return [SamplingParams(**used)] * self.n
        return [SamplingParams(**used | {"seed": self.seed + k}) for k in range(self.n)]

    def _grammar(self) -> dict[str, Any]:
        match self.response_format:
            case ObjectFormat():
                return {"json_schema": {"type": "object"}}
            case SchemaFormat(json_schema=asked):
                return {"json_schema": asked.schema_}
            case RegexFormat(pattern=pattern):
                return {"regex": pattern}
            case TextFormat() | None:
                return {}
            case other:
                assert_never(other)


class TextPart(Body):
    type: Literal["text"]
    text: str


class ChatMessage(Body):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[TextPart], Few(1 << 12)]
    name: str | None = None

    def plain(self) -> dict[str, str]:
        """As templates take it."""
        parts = [self.content] if isinstance(self.content, str) else [p.text for p in self.content]
        role = "system" if self.role == "developer" else self.role
        named = {} if self.name is None else {"name": self.name}
        return {"role": role, "content": "".join(parts), **named}


Messages = Annotated[list[ChatMessage], Few(1 << 12)]


class ChatBody(Asked):
    messages: Annotated[Messages, Field(min_length=1)]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None

    def choices(self) -> list[SamplingParams]:
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise BadParameter("max_tokens and max_completion_tokens are both given",
                               hint="they mean the same: give one")
        if self.top_logprobs is not None and not self.logprobs:
            raise BadParameter("top_logprobs is given, but logprobs is not true",
                               hint="set logprobs to true")
        most = self.max_completion_tokens if self.max_tokens is None else self.max_tokens
        return self.params(
            max_tokens=most,
            logprobs=(self.top_logprobs or 0) if self.logprobs else None)


class CompletionBody(Asked):
    prompt: str | Tokens | Texts | ManyTokens
    logprobs: int | None = None
    echo: Literal[False] = False

    def choices(self) -> list[SamplingParams]:
        """OpenAI's answers to plain prompts have 16 tokens, if nothing else is said."""
        return self.params(max_tokens=16 if self.max_tokens is None else self.max_tokens)

    @property
    def prompts(self) -> list[str | list[int]]:
        if isinstance(self.prompt, str):
            return [self.prompt]
        if not self.prompt:
            raise BadParameter("prompt is an empty list", hint="a text, tokens, or a list of them")
        if isinstance(self.prompt[0], int):
            return [[t for t in self.prompt if isinstance(t, int)]]
        return [p for p in self.prompt if not isinstance(p, int)]


class TokenizeBody(Body):
    model: Name | None = None
    prompt: str | None = None
    messages: Messages | None = None


class DetokenizeBody(Body):
    model: Name | None = None
    tokens: Tokens
