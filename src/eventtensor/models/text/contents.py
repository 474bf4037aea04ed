"""Contents of a chat that hold the text of a control token, which only the template may give. They
are marked before the template has them. A tokenizer of its own looks for control tokens, and then
takes the marks out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..packages import need

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
    """With a mark inside of each of the texts, however deep in lists and tables."""
    if isinstance(value, str):
        for text in texts:
            if text in value:
                value = value.replace(text, text[0] + MARK + text[1:])
        return value
    if isinstance(value, Mapping):
        return {name: marked(v, texts) for name, v in value.items()}
    if isinstance(value, list | tuple):
        return [marked(v, texts) for v in value]
    return value


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
