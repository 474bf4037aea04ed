"""What the scripted model says. The scripts of all clients ask the same few things."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Rule:
    """`when` is searched in the last turn of the user, and what follows it. The model makes the
    `calls` in turn, each after the result of the one before: a pattern for the name of a tool, or
    several, which it calls at once. What no offered tool matches is left out. `values` are the
    arguments of calls, and the values of what else is JSON. In the end it says `text`."""

    when: str
    text: str = "Done."
    calls: Sequence[str | Sequence[str]] = ()
    values: Mapping[str, Any] = field(default_factory=dict)


# Agents of smolagents give results of tools as a turn of the user, and want code.
_CODE = '<code>\nfinal_answer(get_weather("Paris"))\n</code>'
# The fields of an answer to DSPy's ChatAdapter.
_FIELDS = "[[ ## name ## ]]\nBob\n\n[[ ## age ## ]]\n30\n\n[[ ## completed ## ]]"

# The first that matches counts.
RULES = (
    Rule(
        r"Observation:\n22 degrees",
        calls=("final_answer",),
        values={"answer": "It is 22 degrees in Paris."},
    ),
    Rule(r"in Python code", _CODE),
    Rule(r"`\[\[ ## name ## \]\]`", _FIELDS),
    Rule(
        r"(?i)weather in Paris",
        "It is 22 degrees in Paris.",
        calls=(r".*weather.*",),
        values={"city": "Paris", "location": "Paris"},
    ),
    Rule(
        r"(?i)weather and time in Paris",
        "It is 22 degrees in Paris, at noon.",
        calls=((r".*weather.*", r".*time.*"),),
        values={"city": "Paris", "location": "Paris"},
    ),
    Rule(
        r"Bob is 30",
        '{"name": "Bob", "age": 30}',
        calls=(r".*",),
        values={"name": "Bob", "age": 30, "tasks": [{"name": "Bob", "age": 30}]},
    ),
    Rule(r"(?i)two and two", "<think>\nTwo and two are four.\n</think>\n\n4"),
    Rule(r"weatherman answer", "It is 22 degrees in Paris.", calls=(r"transfer_to_.*",)),
    Rule(r"", "The script has no more to say."),
)
