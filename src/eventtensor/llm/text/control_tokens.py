"""Keeps the texts of control tokens in chat messages from becoming control tokens, which only the
template may write. A mark splits these texts before the template sees them. A second tokenizer
finds control tokens and then removes the marks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..optional_packages import need

MARK = "\ufdd0"  # a noncharacter, which no vocabulary has


def control_texts(core: Any) -> list[str]:
    """The texts of the control tokens of a tokenizer, long ones first."""
    added = core.get_added_tokens_decoder().values()
    return sorted((t.content for t in added if t.special and t.content), key=len, reverse=True)


def have_lookalikes(core: Any) -> bool:
    """True if normalization may turn another text into a control token."""
    added = core.get_added_tokens_decoder().values()
    return core.normalizer is not None and any(t.special and t.normalized for t in added)


def mark(value: Any, texts: Sequence[str]) -> Any:
    """The value with a mark inside of each of the texts, at any depth of lists and tables, keys
    included."""
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
    """All texts of a value, at any depth of lists and tables, keys included. Numbers count as one
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


def tokenizer_without_marks(core: Any) -> Any:
    """The same tokenizer for texts with marks. It finds control tokens in the marked text; the text
    between them loses its marks before anything else."""
    definition = json.loads(core.to_str())
    out = {"type": "Replace", "pattern": {"String": MARK}, "content": ""}
    others = [definition["normalizer"]] if definition["normalizer"] else []
    definition["normalizer"] = {"type": "Sequence", "normalizers": [out, *others]}
    for token in definition["added_tokens"]:
        token["normalized"] &= not token["special"]
    return need("tokenizers").Tokenizer.from_str(json.dumps(definition))
