"""What every API of the server works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .body_reader import Bodies
from .generation_service import Answering
from .token_texts import TokenTexts


@dataclass(frozen=True)
class ApiParts:
    """`find_model` gives the name to answer under, and refuses names that are not the model's."""

    bodies: Bodies
    answering: Answering
    texts: TokenTexts
    find_model: Callable[[str | None], str]
