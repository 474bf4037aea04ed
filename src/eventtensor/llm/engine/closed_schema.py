"""JSON schemas whose objects have only the properties that they name, unless they say otherwise.

JSON Schema allows other properties where a schema says nothing, and a model that may invent
properties does not stop. So this module rewrites the schema. It looks at all schemas of one value
together, because one branch of an allOf must not forbid a property that another branch names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from ...errors import BadGrammar

# What schemas are within a schema, of the same value and of its parts: as values of a table, in a
# list, or alone.
Names = tuple[str, ...]
_SAME_LISTS: Names = ("allOf", "anyOf", "oneOf")
_SAME_TABLES: Names = ("dependentSchemas",)
_SAME: Names = ("if", "then", "else", "not")
_PART_LISTS: Names = ("prefixItems", "items")
_PART_TABLES: Names = ("properties", "patternProperties", "$defs", "definitions")
_PARTS: Names = ("items", "additionalItems", "unevaluatedItems", "contains",
                 "additionalProperties", "unevaluatedProperties")
# Who has one of these has said which other properties there may be.
_SAYS = {"additionalProperties", "unevaluatedProperties", "patternProperties", "propertyNames"}
# Who has one of these tells something of properties.
_TELLS = _SAYS | {"properties", "required", "minProperties", "dependentRequired"}
_MOST_LOOKS = 200_000  # at schemas: a second


def close(schema: dict[str, Any]) -> dict[str, Any]:
    try:
        closing = _Closing(schema)
        closing.find_shared(schema)
        found = closing.value(schema)
    except RecursionError:
        raise BadGrammar("the schema is too deep") from None
    assert isinstance(found, dict)
    return found


class _Closing:
    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._shared = set[int]()  # schemas that are named where others count too
        self._targets = dict[str, Any]()
        self._looks = 0

    # ---- which schemas count for one value ---------------------------------------------------

    def find_shared(self, schema: Any) -> None:
        """Schemas that are named beside others must stay open, wherever else they are used."""
        for part in _all(schema):
            if self._alternatives(part) is None:
                for same in self._with(part):
                    if same is not part:
                        self._shared.add(id(same))

    def _alternatives(self, schema: dict[str, Any]) -> list[Any] | None:
        """Of a schema that says nothing of properties itself, each of which counts alone."""
        same = [k for k in (*_SAME_LISTS, *_SAME_TABLES, *_SAME, "$ref") if k in schema]
        if len(same) != 1 or _TELLS & schema.keys():
            return None
        some = schema[same[0]]
        if same[0] == "$ref":
            return [self._target(some)]
        one = isinstance(some, list) and (same[0] != "allOf" or len(some) == 1)
        return list(some) if one else None

    def _with(self, schema: Any) -> Iterator[dict[str, Any]]:
        """It, and those that its value must, or may have to, keep to beside it."""
        seen, left = set[int](), [schema]
        while left:
            self._looks += 1
            if self._looks > _MOST_LOOKS:
                raise BadGrammar("the schema has too many parts that hang together")
            part = left.pop()
            if id(part) in seen or not isinstance(part, dict):
                continue
            seen.add(id(part))
            yield part
            if "$ref" in part:
                left.append(self._target(part["$ref"]))
            left += reversed(list(_same(part)))

    def _target(self, ref: Any) -> Any:
        """None where it is none of this schema's own."""
        if not isinstance(ref, str) or not ref.startswith("#"):
            return None
        if ref not in self._targets:
            self._targets[ref] = self._find(ref)
        return self._targets[ref]

    def _find(self, ref: str) -> Any:
        found: Any = self._root
        for step in ref[1:].split("/")[1:] if ref.startswith("#/") else []:
            key = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and key in found:
                found = found[key]
            elif isinstance(found, list) and key.isdigit() and int(key) < len(found):
                found = found[int(key)]
            else:
                return None
        return found if ref == "#" or ref.startswith("#/") else None

    # ---- the schema anew ---------------------------------------------------------------------

    def value(self, schema: Any) -> Any:
        """A schema to which nothing else is added for its value."""
        if not isinstance(schema, dict):
            return schema
        if self._alternatives(schema) is not None:
            return self._copy(schema, alone=True)
        found = self._copy(schema, alone=False)
        return found if id(schema) in self._shared else self._closed(schema, found)

    def _copy(self, schema: Any, alone: bool) -> Any:
        """With its parts closed, and those of the same value too if they count alone."""
        if not isinstance(schema, dict):
            return schema
        found = dict(schema)
        same = self.value if alone else self._open
        for name, some in schema.items():
            change = same if name in {*_SAME_LISTS, *_SAME_TABLES, *_SAME} else self.value
            if name in (*_SAME_LISTS, *_PART_LISTS) and isinstance(some, list):
                found[name] = [change(s) for s in some]
            elif name in (*_SAME_TABLES, *_PART_TABLES) and isinstance(some, dict):
                found[name] = {k: change(s) for k, s in some.items()}
            elif name in (*_SAME, *_PARTS):
                found[name] = change(some)
        return found

    def _open(self, schema: Any) -> Any:
        return self._copy(schema, alone=False)

    def _closed(self, schema: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
        every = list(self._with(schema))
        refs = [self._target(s["$ref"]) for s in every if "$ref" in s]
        tables = [s["properties"] for s in every if isinstance(s.get("properties"), dict)]
        if not tables or None in refs or any(_SAYS & s.keys() for s in every):
            return found
        names = dict.fromkeys(name for table in tables for name in table)
        names |= dict.fromkeys(name for s in every for name in _texts(s.get("required")))
        least = schema.get("minProperties", 0)
        if isinstance(least, int | float) and least > len(names):
            return found
        own = found.get("properties", {})
        if not isinstance(own, dict):
            return found
        return found | {"properties": {**own, **{n: True for n in names if n not in own}},
                        "additionalProperties": False}


def _same(schema: dict[str, Any]) -> Iterator[Any]:
    return _inner(schema, (*_SAME_LISTS, *_SAME_TABLES, *_SAME), _SAME_TABLES)


def _all(schema: Any) -> Iterator[dict[str, Any]]:
    """All schemas within it, and itself."""
    if isinstance(schema, dict):
        yield schema
        tables = (*_SAME_TABLES, *_PART_TABLES)
        lists = (*_SAME_LISTS, *_PART_LISTS)
        for each in _inner(schema, (*lists, *tables, *_SAME, *_PARTS), tables):
            yield from _all(each)


def _inner(schema: dict[str, Any], names: Names, tables: Names) -> Iterator[Any]:
    for name, some in schema.items():
        if name not in names:
            continue
        if name in tables:
            yield from some.values() if isinstance(some, dict) else ()
        else:
            yield from some if isinstance(some, list) else [some]


def _texts(some: Any) -> list[str]:
    return [x for x in some if isinstance(x, str)] if isinstance(some, list) else []
