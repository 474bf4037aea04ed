"""The names under which requests may address the model."""

from __future__ import annotations

from collections.abc import Sequence

from .error_responses import RefusedRequest


class ModelNames:
    """The first name is the default for requests without one."""

    def __init__(self, names: Sequence[str]) -> None:
        self.all = tuple(dict.fromkeys(names))

    def find(self, name: str | None) -> str:
        """The name for the response. An unknown name is refused."""
        if name is None:
            return self.all[0]
        if name not in self.all:
            known = ", ".join(map(repr, self.all))
            raise RefusedRequest(404, f"the model {name!r} is not here; {known} "
                                 f"{'is' if len(self.all) == 1 else 'are'}",
                                 "model_not_found", "model")
        return name
