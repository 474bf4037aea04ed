"""Arguments of a body that come by pages of the stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..cpp.args import ArgWriter
from ..cpp.value import Value


@dataclass(frozen=True)
class PageArgs(ArgWriter):
    """Arguments of which some are `held` pages and some are `paged`, used up by their product."""

    held: Mapping[int, Value] = field(default_factory=dict)
    paged: frozenset[int] = frozenset()

    def read(self, k: int, storage: bool = False) -> Value:
        if k in self.paged:
            return Value(self.type(k), _never_read)
        if k in self.held:
            return self.held[k]
        return super().read(k, storage)


def _never_read(index: tuple[str, ...]) -> str:
    raise AssertionError("a page by page operand is read by its product alone")
