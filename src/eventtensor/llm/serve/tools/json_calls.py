"""The form of tool calls that are JSON objects with a name and arguments.

`call_grammar.py` and `call_parser.py` work on this form for several syntaxes."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class JsonCallForm:
    """A call consists of `begin`, one of `heads` (the usual one first), the name of a tool, the
    arguments under `key`, and `end`. `between` separates calls. If `excludes_text`, an answer is
    either text or calls; otherwise text may precede calls. `tag` is a control token that may
    precede the first call."""

    begin: str
    heads: tuple[str, ...]
    key: str
    end: str
    between: str
    excludes_text: bool
    tag: str = ""


def split_lexemes(text: str) -> list[str]:
    """Splits where a model may insert white space."""
    return re.findall(r'"\w+"|<\w+>|\S', text)
