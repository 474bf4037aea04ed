"""Prints docs/errors.md from the catalogue in eventtensor.errors."""

from __future__ import annotations

from eventtensor.errors import catalogue

HEAD = """# Errors

Every user error has a code, a cause, the place in your code and a hint. One class a cause, all
subclasses of `EventTensorError` in `eventtensor.errors`. This page is generated: `make errors`.

| code | class | cause | hint |
|---|---|---|---|"""


def page() -> str:
    rows = [
        f"| {c.code} | `{c.__name__}` | {c.title} | {c.default_hint.replace('|', chr(92) + '|')} |"
        for c in catalogue()
    ]
    return "\n".join([HEAD, *rows]) + "\n"


if __name__ == "__main__":
    print(page(), end="")
