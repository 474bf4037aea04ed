"""What every API of the server works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .answering import Answering
from .bodies import Bodies
from .token_texts import TokenTexts


@dataclass(frozen=True)
class ApiParts:
    """`model` is the name that answers give it; `check_model` refuses all other names."""

    bodies: Bodies
    answering: Answering
    texts: TokenTexts
    model: str
    check_model: Callable[[str | None], None]
