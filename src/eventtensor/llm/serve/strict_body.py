"""The base class of request bodies, which ignores no field silently.

A field is honoured, accepted because it has no effect, or refused with a reason. An unknown field
is an error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, LiteralString, Self, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError


@dataclass(frozen=True)
class MaxItems:
    """Bounds the length of a list. Only its first wrong item is reported, because an error for each
    item would cost more than the list."""

    most: int

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        schema: Any = handler(source)
        schema["fail_fast"], schema["max_length"] = True, self.most
        return cast(CoreSchema, schema)


def _exact_integer(value: Any) -> Any:
    """JSON has one kind of number, and some clients write 4 as 4.0."""
    return int(value) if type(value) is float and value.is_integer() else value


Integer = Annotated[int, BeforeValidator(_exact_integer)]
Name = Annotated[str, Field(max_length=1024)]
Tokens = Annotated[list[int], MaxItems(1 << 20)]
Texts = Annotated[list[str], MaxItems(1 << 10)]


@dataclass(frozen=True)
class NoEffect:
    """A field that is accepted because it changes no answer. `why` says the reason; `values` are
    the accepted values, all if empty."""

    why: str
    values: tuple[Any, ...] = ()

    def accepts(self, value: Any) -> bool:
        return not self.values or any(type(v) is type(value) and v == value for v in self.values)


class Body(BaseModel):
    """Declared fields are honoured. A null field counts as absent."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True, cache_strings="keys")
    accepted: ClassVar[Mapping[str, NoEffect]] = {}
    refused: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Lists the accepted fields and allows no others."""
        schema = handler.resolve_ref_schema(handler(core))
        accepted = {name: {"enum": [*field.values, None]} if field.values else {}
                    for name, field in cls.accepted.items()}
        schema["properties"] = schema.get("properties", {}) | accepted
        schema["additionalProperties"] = False
        return schema

    @model_validator(mode="after")
    def _check_extra(self) -> Self:
        for name, value in (self.model_extra or {}).items():
            if value is not None and (found := self._objection(name, value)) is not None:
                code, why = found
                raise PydanticCustomError(code, "{why}", {"field": name, "why": why})
        return self

    def _objection(self, name: str, value: Any) -> tuple[LiteralString, str] | None:
        """OpenAI's code, and the reason."""
        if (field := self.accepted.get(name)) is not None:
            if field.accepts(value):
                return None
            shown = " or ".join(repr(v) for v in field.values)
            return "unsupported_value", f"only {shown} is accepted: {field.why}"
        if (why := self.refused.get(name)) is not None:
            return "unsupported_parameter", why
        return "unknown_parameter", "there is no such field"
