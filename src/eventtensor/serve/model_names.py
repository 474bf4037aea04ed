"""The names that requests may give the model."""

from __future__ import annotations

from collections.abc import Sequence

from .error_responses import RefusedRequest


class ModelNames:
    """The first is the model's name in answers to requests that give none."""

    def __init__(self, names: Sequence[str]) -> None:
        self.all = tuple(dict.fromkeys(names))

    def find(self, asked: str | None) -> str:
        """The name to answer under."""
        if asked is None:
            return self.all[0]
        if asked not in self.all:
            known = ", ".join(map(repr, self.all))
            raise RefusedRequest(404, f"the model {asked!r} is not here; {known} "
                                 f"{'is' if len(self.all) == 1 else 'are'}",
                                 "model_not_found", "model")
        return asked
