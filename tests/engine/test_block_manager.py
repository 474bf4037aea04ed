"""Blocks of the KV cache: shared prefixes, eviction of the oldest, and no block is ever lost."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from eventtensor.llm.engine.block_manager import BlockManager

SIZE = 4


def filled(blocks, tokens):
    table = blocks.allocate(tokens)
    assert blocks.extend(table, len(tokens))
    blocks.commit_full_blocks(table, tokens, len(tokens))
    return table


def test_full_blocks_of_one_request_serve_the_next_with_the_same_begin():
    blocks = BlockManager(8, SIZE)
    first = filled(blocks, list(range(10)))
    assert len(first.blocks) == 3
    again = blocks.allocate([*range(8), 99, 98])
    assert again.blocks == first.blocks[:2] and again.num_committed == 2
    other = blocks.allocate([0, 1, 2, 3, 9, 9, 9, 9, 9])
    assert other.blocks == first.blocks[:1]
    assert blocks.allocate([5, *range(1, 9)]).blocks == []


def test_one_token_is_always_left_to_compute():
    blocks = BlockManager(8, SIZE)
    filled(blocks, list(range(8)))
    assert len(blocks.allocate(list(range(8))).blocks) == 1
    assert len(blocks.allocate(list(range(9))).blocks) == 2


def test_a_block_is_known_only_when_all_of_it_is_in_the_cache():
    blocks, tokens = BlockManager(8, SIZE), list(range(9))
    table = blocks.allocate(tokens)
    blocks.extend(table, len(tokens))
    blocks.commit_full_blocks(table, tokens, 7)
    assert len(blocks.allocate(tokens).blocks) == 1


def test_equal_tokens_after_another_begin_are_not_the_same():
    blocks = BlockManager(8, SIZE)
    filled(blocks, [1, 1, 1, 1, 2, 2, 2, 2, 0])
    assert blocks.allocate([3, 3, 3, 3, 2, 2, 2, 2, 0]).blocks == []
    assert blocks.allocate([2, 2, 2, 2, 0]).blocks == []


def test_what_was_used_last_is_forgotten_last_and_a_begin_after_its_end():
    blocks = BlockManager(4, SIZE)
    old, new = [*range(9)], [*range(50, 54), 0]
    for tokens in (old, new):
        blocks.free(filled(blocks, tokens))
    assert blocks.num_used_blocks == 0
    blocks.extend(table := blocks.allocate([77]), 2 * SIZE)  # an empty block, and a cached one
    assert len(blocks.allocate(old).blocks) == 1 and len(blocks.allocate(new).blocks) == 1
    assert len(table.blocks) == 2


def test_too_few_blocks_give_none():
    blocks = BlockManager(3, SIZE)
    table = blocks.allocate([1])
    assert not blocks.extend(table, 13) and blocks.num_free_blocks == 3
    assert blocks.extend(table, 12) and blocks.num_free_blocks == 0
    blocks.free(table)
    assert blocks.num_free_blocks == 3 and table.blocks == []


class Machine(RuleBasedStateMachine):
    """Requests allocate, extend, compute and free in any order. The model is the content of a
    cache: `held` are the tokens that were written to a block, by position."""

    def __init__(self):
        super().__init__()
        self.blocks, self.open, self.held = BlockManager(9, SIZE), [], {}

    # Few different tokens, so that begins are shared.
    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=17))
    def begin(self, tokens):
        table = self.blocks.allocate(tokens)
        assert table.num_committed * SIZE < len(tokens)
        for k, block in enumerate(table.blocks):
            assert self.held[block] == tokens[: (k + 1) * SIZE], "a block with other tokens"
        self.open.append([table, tokens, table.num_committed * SIZE])

    @precondition(lambda self: self.open)
    @rule(data=st.data(), more=st.integers(0, 9))
    def work(self, data, more):
        entry = data.draw(st.sampled_from(self.open))
        table, tokens, done = entry
        new = min(len(tokens), done + more)
        if self.blocks.extend(table, new):
            for at in range(done, new):
                block = table.blocks[at // SIZE]
                assert sum(block in t.blocks for t, _, _ in self.open) == 1, "a shared block"
                self.held[block] = tokens[: at + 1]
            self.blocks.commit_full_blocks(table, tokens, new)
            entry[2] = new

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def end(self, data):
        entry = data.draw(st.sampled_from(self.open))
        self.open = [e for e in self.open if e is not entry]
        self.blocks.free(entry[0])

    @invariant()
    def blocks_in_use_are_those_of_open_requests(self):
        used = {p for table, _, _ in self.open for p in table.blocks}
        assert self.blocks.num_used_blocks == len(used)

    @invariant()
    def no_table_names_a_block_twice(self):
        for table, _, _ in self.open:
            assert len(set(table.blocks)) == len(table.blocks)

    def teardown(self):
        for table, _, _ in self.open:
            self.blocks.free(table)
        assert self.blocks.num_used_blocks == 0 and self.blocks.num_free_blocks == 9


Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestBlocks = Machine.TestCase
