"""Prints docs/fields.md: what the server does with each field of a request, from the bodies that
check them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, get_args

from eventtensor.llm.serve.openapi import BODIES
from eventtensor.llm.serve.strict_body import Body, NoEffect

HEAD = """# Fields of requests

The server honours a field, accepts it because it cannot change an answer, or refuses it with the
reason. Nothing is ignored silently: a field in none of these lists is an error. One that is null
counts as absent. This page is generated from the classes that check requests: `make fields`.
"""


def page() -> str:
    """Bodies of several paths come once."""
    paths: dict[type[Body], list[str]] = {}
    for path, (body, _) in BODIES.items():
        paths.setdefault(body, []).append(f"`POST {path}`")
    return "\n".join([HEAD, *(_section(", ".join(names), body) for body, names in paths.items())])


def _section(paths: str, body: type[Body]) -> str:
    bodies = list(_nested("", body))
    honoured = _once(f"`{prefix}{info.alias or name}`" for prefix, kind in bodies
                     for name, info in kind.model_fields.items())
    lines = [f"## {paths}", "", f"Honoured: {', '.join(honoured)}.", ""]
    rows = [f"| `{prefix}{name}` | {_accepted(neutral)} | {_cell(neutral.why)} |"
            for prefix, kind in bodies for name, neutral in kind.accepted.items()]
    rows += [f"| `{prefix}{name}` | refused | {_cell(why)} |"
             for prefix, kind in bodies for name, why in kind.refused.items()]
    if rows:
        lines += ["| other field | what happens | why |", "|---|---|---|", *_once(rows), ""]
    return "\n".join(lines)


def _once(lines: Iterable[str]) -> list[str]:
    """Kinds of a union have fields in common."""
    return list(dict.fromkeys(lines))


def _accepted(neutral: NoEffect) -> str:
    if not neutral.values:
        return "accepted"
    return f"accepted if {' or '.join(f'`{value!r}`' for value in neutral.values)}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _nested(prefix: str, body: type[Body]) -> Iterator[tuple[str, type[Body]]]:
    """A body, then those of its fields; `prefix` says where it stands."""
    yield prefix, body
    seen = set[type[Body]]()
    for name, info in body.model_fields.items():
        for many, kind in _bodies_in(info.annotation, ""):
            if kind not in seen:
                seen.add(kind)
                yield from _nested(f"{prefix}{info.alias or name}{many}.", kind)


def _bodies_in(annotation: Any, many: str) -> Iterator[tuple[str, type[Body]]]:
    if isinstance(annotation, type) and issubclass(annotation, Body):
        yield many, annotation
        return
    inside = "[]" if getattr(annotation, "__origin__", None) is list else many
    for part in get_args(annotation):
        yield from _bodies_in(part, inside)


if __name__ == "__main__":
    print(page(), end="")
