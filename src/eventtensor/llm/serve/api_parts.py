"""The services that every HTTP API of the server shares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .body_reader import RequestBodyReader
from .generation_service import GenerationService
from .token_texts import TokenTexts


@dataclass(frozen=True)
class ApiParts:
    """`find_model` returns the model name for the response. It refuses an unknown name."""

    bodies: RequestBodyReader
    generation: GenerationService
    texts: TokenTexts
    find_model: Callable[[str | None], str]
