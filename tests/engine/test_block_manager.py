"""Pages of the cache: shared begins, the oldest forgotten first, and none ever lost."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from eventtensor.engine.block_manager import Pages

SIZE = 4


def filled(pages, tokens):
    table = pages.open(tokens)
    assert pages.grow(table, len(tokens))
    pages.fill(table, tokens, len(tokens))
    return table


def test_full_pages_of_one_request_serve_the_next_with_the_same_begin():
    pages = Pages(8, SIZE)
    first = filled(pages, list(range(10)))
    assert len(first.pages) == 3
    again = pages.open([*range(8), 99, 98])
    assert again.pages == first.pages[:2] and again.full == 2
    other = pages.open([0, 1, 2, 3, 9, 9, 9, 9, 9])
    assert other.pages == first.pages[:1]
    assert pages.open([5, *range(1, 9)]).pages == []


def test_one_token_is_always_left_to_compute():
    pages = Pages(8, SIZE)
    filled(pages, list(range(8)))
    assert len(pages.open(list(range(8))).pages) == 1
    assert len(pages.open(list(range(9))).pages) == 2


def test_a_page_is_known_only_when_all_of_it_is_in_the_cache():
    pages, tokens = Pages(8, SIZE), list(range(9))
    table = pages.open(tokens)
    pages.grow(table, len(tokens))
    pages.fill(table, tokens, 7)
    assert len(pages.open(tokens).pages) == 1


def test_equal_tokens_after_another_begin_are_not_the_same():
    pages = Pages(8, SIZE)
    filled(pages, [1, 1, 1, 1, 2, 2, 2, 2, 0])
    assert pages.open([3, 3, 3, 3, 2, 2, 2, 2, 0]).pages == []
    assert pages.open([2, 2, 2, 2, 0]).pages == []


def test_what_was_used_last_is_forgotten_last_and_a_begin_after_its_end():
    pages = Pages(4, SIZE)
    old, new = [*range(9)], [*range(50, 54), 0]
    for tokens in (old, new):
        pages.close(filled(pages, tokens))
    assert pages.used == 0
    pages.grow(table := pages.open([77]), 2 * SIZE)  # one empty page, and one that was known
    assert len(pages.open(old).pages) == 1 and len(pages.open(new).pages) == 1
    assert len(table.pages) == 2


def test_too_few_pages_give_none():
    pages = Pages(3, SIZE)
    table = pages.open([1])
    assert not pages.grow(table, 13) and pages.available == 3
    assert pages.grow(table, 12) and pages.available == 0
    pages.close(table)
    assert pages.available == 3 and table.pages == []


class Machine(RuleBasedStateMachine):
    """Requests open, grow, compute and close in any order. The model is what a cache would hold:
    `held` are the tokens that were written to a page, by position."""

    def __init__(self):
        super().__init__()
        self.pages, self.open, self.held = Pages(9, SIZE), [], {}

    # Few different tokens, so that begins are shared.
    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=17))
    def begin(self, tokens):
        table = self.pages.open(tokens)
        assert table.full * SIZE < len(tokens)
        for k, page in enumerate(table.pages):
            assert self.held[page] == tokens[: (k + 1) * SIZE], "a page with other tokens"
        self.open.append([table, tokens, table.full * SIZE])

    @precondition(lambda self: self.open)
    @rule(data=st.data(), more=st.integers(0, 9))
    def work(self, data, more):
        entry = data.draw(st.sampled_from(self.open))
        table, tokens, done = entry
        new = min(len(tokens), done + more)
        if self.pages.grow(table, new):
            for at in range(done, new):
                page = table.pages[at // SIZE]
                assert sum(page in t.pages for t, _, _ in self.open) == 1, "a shared page"
                self.held[page] = tokens[: at + 1]
            self.pages.fill(table, tokens, new)
            entry[2] = new

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def end(self, data):
        entry = data.draw(st.sampled_from(self.open))
        self.open = [e for e in self.open if e is not entry]
        self.pages.close(entry[0])

    @invariant()
    def pages_in_use_are_those_of_open_requests(self):
        used = {p for table, _, _ in self.open for p in table.pages}
        assert self.pages.used == len(used)

    @invariant()
    def no_table_names_a_page_twice(self):
        for table, _, _ in self.open:
            assert len(set(table.pages)) == len(table.pages)

    def teardown(self):
        for table, _, _ in self.open:
            self.pages.close(table)
        assert self.pages.used == 0 and self.pages.available == 9


Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestPages = Machine.TestCase
