"""Calls that are JSON objects with a name and arguments, as several syntaxes have them."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class JsonCallForm:
    """A call is `begin`, one of `heads` (the usual one first), the name of a tool, the arguments
    under the name `key`, and `end`; `between` stands between two calls. With `alone` an answer is
    text or calls; else text may come before calls. `tag` is a control token that may stand before
    the first call."""

    begin: str
    heads: tuple[str, ...]
    key: str
    end: str
    between: str
    alone: bool
    tag: str = ""



def parts(text: str) -> list[str]:
    """Between which a model may put blanks."""
    return re.findall(r'"\w+"|<\w+>|\S', text)
