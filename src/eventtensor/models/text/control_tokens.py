"""Contents of a chat that hold the text of a control token, which only the template may give. They
are marked before the template has them. A tokenizer of its own looks for control tokens, and then
takes the marks out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..optional_packages import need

MARK = "\ufdd0"  # no character, and in no vocabulary


def controls(core: Any) -> list[str]:
    """The texts of its control tokens, long ones first."""
    added = core.get_added_tokens_decoder().values()
    return sorted((t.content for t in added if t.special and t.content), key=len, reverse=True)


def are_normalized(core: Any) -> bool:
    """Whether a control token may also come of a text that only looks like it."""
    added = core.get_added_tokens_decoder().values()
    return core.normalizer is not None and any(t.special and t.normalized for t in added)


def marked(value: Any, texts: Sequence[str]) -> Any:
    """With a mark inside of each of the texts, however deep in lists and tables, in their names
    too."""
    first = {text[0] for text in texts}

    def inner(part: Any) -> Any:
        if isinstance(part, str):
            if any(c in part for c in first):
                for text in texts:
                    if text in part:
                        part = part.replace(text, text[0] + MARK + text[1:])
            return part
        if isinstance(part, Mapping):
            return {inner(name): inner(v) for name, v in part.items()}
        if isinstance(part, list | tuple):
            return [inner(v) for v in part]
        return part

    return inner(value)


def texts_in(value: Any) -> Iterator[str]:
    """All of them, however deep in lists and tables, their names too; numbers count as one
    character."""
    parts = [value]
    while parts:
        part = parts.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, Mapping):
            parts += [*part, *part.values()]
        elif isinstance(part, list | tuple):
            parts += part
        elif part is not None:
            yield "0"


def unmarking(core: Any) -> Any:
    """The same tokenizer for a text with marks. Control tokens are found in the text as it is, and
    what is between them loses its marks before all else."""
    definition = json.loads(core.to_str())
    out = {"type": "Replace", "pattern": {"String": MARK}, "content": ""}
    others = [definition["normalizer"]] if definition["normalizer"] else []
    definition["normalizer"] = {"type": "Sequence", "normalizers": [out, *others]}
    for token in definition["added_tokens"]:
        token["normalized"] &= not token["special"]
    return need("tokenizers").Tokenizer.from_str(json.dumps(definition))
