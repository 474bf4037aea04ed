"""Who has which page of the cache. Full pages keep what they hold when nobody uses them any more,
so that a later prompt with the same begin finds it; the one unused for longest is taken first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

# What a full page holds: a name for all that comes before it, and its own tokens. Names are equal
# only where all tokens are, so that nothing hangs on a hash.
Content = tuple[int, tuple[int, ...]]
_START = 0  # the name of what comes before a first page: nothing


@dataclass
class Table:
    """The pages of one request, in order; the first `full` of them are known by their content, all
    of which has the name `name`."""

    pages: list[int] = field(default_factory=list)
    full: int = 0
    name: int = _START


class Pages:
    """`count` pages of `size` tokens."""

    def __init__(self, count: int, size: int) -> None:
        self.count, self.size = count, size
        self._empty = list(range(count - 1, -1, -1))
        self._users = [0] * count
        self._idle: OrderedDict[int, None] = OrderedDict()  # known, without users; oldest first
        self._by_content: dict[Content, int] = {}
        self._known: dict[int, tuple[Content, int]] = {}  # page: what it holds, and its name
        self._next_name = _START + 1

    @property
    def available(self) -> int:
        return len(self._empty) + len(self._idle)

    @property
    def used(self) -> int:
        return self.count - self.available

    def open(self, tokens: Sequence[int]) -> Table:
        """A table that begins with the pages which hold the begin of these tokens already. One
        token at least is left to be computed, for what comes after it."""
        table = Table()
        for at in range(0, len(tokens) - self.size, self.size):
            page = self._by_content.get((table.name, tuple(tokens[at : at + self.size])))
            if page is None:
                break
            self._hold(page)
            table.pages.append(page)
            table.name = self._known[page][1]
        table.full = len(table.pages)
        return table

    def grow(self, table: Table, tokens: int) -> bool:
        """Pages for so many tokens in all; False, and none, if there are too few."""
        more = -(-tokens // self.size) - len(table.pages)
        if more > self.available:
            return False
        for _ in range(more):
            page = self._empty.pop() if self._empty else self._forget_oldest()
            self._hold(page)
            table.pages.append(page)
        return True

    def fill(self, table: Table, tokens: Sequence[int], done: int) -> None:
        """The first `done` tokens are in the cache: full pages among them become known."""
        while (table.full + 1) * self.size <= done:
            at = table.full * self.size
            content = table.name, tuple(tokens[at : at + self.size])
            table.name = self._learn(table.pages[table.full], content)
            table.full += 1

    def close(self, table: Table) -> None:
        """The last page first: what is left of a text that is forgotten is then a begin of it."""
        for page in reversed(table.pages):
            self._users[page] -= 1
            if self._users[page] == 0:
                if page in self._known:
                    self._idle[page] = None
                else:
                    self._empty.append(page)
        table.pages.clear()
        table.full, table.name = 0, _START

    def _hold(self, page: int) -> None:
        self._users[page] += 1
        self._idle.pop(page, None)

    def _learn(self, page: int, content: Content) -> int:
        """The name of the content. If another page holds the same, that one stays the known."""
        other = self._by_content.get(content)
        if other is not None:
            return self._known[other][1]
        name, self._next_name = self._next_name, self._next_name + 1
        self._by_content[content] = page
        self._known[page] = content, name
        return name

    def _forget_oldest(self) -> int:
        page, _ = self._idle.popitem(last=False)
        content, _ = self._known.pop(page)
        del self._by_content[content]
        return page
