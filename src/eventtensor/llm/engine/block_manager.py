"""The blocks of the KV cache: which request uses which, and which hold a known prefix.

A block table is allocated with the blocks that already hold the prefix of a prompt. Full blocks
keep their content when no request uses them any more, so that a later prompt with the same prefix
finds them. The manager evicts the block that has been unused for longest. Which request gets blocks
is not decided here, but in scheduler.py."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

# The content of a full block: the id of the prefix before it, and its own tokens. Ids are equal
# only where all tokens are, so that correctness does not depend on a hash.
BlockContent = tuple[int, tuple[int, ...]]
_EMPTY_PREFIX = 0  # the id of the prefix before a first block


@dataclass
class BlockTable:
    """The blocks of one request, in order. The first `num_committed` are in the prefix cache, and
    `prefix_id` is the id of the prefix that they hold."""

    blocks: list[int] = field(default_factory=list)
    num_committed: int = 0
    prefix_id: int = _EMPTY_PREFIX


class BlockManager:
    """`num_blocks` blocks of `block_tokens` tokens, with reference counts."""

    def __init__(self, num_blocks: int, block_tokens: int) -> None:
        self.num_blocks, self.block_tokens = num_blocks, block_tokens
        self._empty = list(range(num_blocks - 1, -1, -1))
        self._num_users = [0] * num_blocks
        self._evictable: OrderedDict[int, None] = OrderedDict()  # cached, unused; oldest first
        self._block_of_content: dict[BlockContent, int] = {}
        self._cached: dict[int, tuple[BlockContent, int]] = {}  # by block, with its prefix id
        self._next_prefix_id = _EMPTY_PREFIX + 1

    @property
    def num_free_blocks(self) -> int:
        return len(self._empty) + len(self._evictable)

    @property
    def num_used_blocks(self) -> int:
        return self.num_blocks - self.num_free_blocks

    def allocate(self, tokens: Sequence[int]) -> BlockTable:
        """A table with the cached blocks of the longest prefix of these tokens. At least one token
        stays outside, because a step must compute the logits after it."""
        table = BlockTable()
        for at in range(0, len(tokens) - self.block_tokens, self.block_tokens):
            content = table.prefix_id, tuple(tokens[at : at + self.block_tokens])
            block = self._block_of_content.get(content)
            if block is None:
                break
            self._add_user(block)
            table.blocks.append(block)
            table.prefix_id = self._cached[block][1]
        table.num_committed = len(table.blocks)
        return table

    def extend(self, table: BlockTable, num_tokens: int) -> bool:
        """Adds blocks until the table holds `num_tokens` tokens; adds none and returns False if
        there are too few."""
        missing = -(-num_tokens // self.block_tokens) - len(table.blocks)
        if missing > self.num_free_blocks:
            return False
        for _ in range(missing):
            block = self._empty.pop() if self._empty else self._evict_oldest()
            self._add_user(block)
            table.blocks.append(block)
        return True

    def commit_full_blocks(
        self, table: BlockTable, tokens: Sequence[int], num_computed: int
    ) -> None:
        """Puts full blocks of the first `num_computed` tokens into the prefix cache."""
        while (table.num_committed + 1) * self.block_tokens <= num_computed:
            at = table.num_committed * self.block_tokens
            content = table.prefix_id, tuple(tokens[at : at + self.block_tokens])
            table.prefix_id = self._commit(table.blocks[table.num_committed], content)
            table.num_committed += 1

    def free(self, table: BlockTable) -> None:
        """Takes the blocks from the request, the last one first, so that eviction shortens a cached
        text from its end."""
        for block in reversed(table.blocks):
            self._num_users[block] -= 1
            if self._num_users[block] == 0:
                if block in self._cached:
                    self._evictable[block] = None
                else:
                    self._empty.append(block)
        table.blocks.clear()
        table.num_committed, table.prefix_id = 0, _EMPTY_PREFIX

    def _add_user(self, block: int) -> None:
        self._num_users[block] += 1
        self._evictable.pop(block, None)

    def _commit(self, block: int, content: BlockContent) -> int:
        """The prefix id of the content. If another block has the same content, that one stays the
        cached one."""
        other = self._block_of_content.get(content)
        if other is not None:
            return self._cached[other][1]
        prefix_id, self._next_prefix_id = self._next_prefix_id, self._next_prefix_id + 1
        self._block_of_content[content] = block
        self._cached[block] = content, prefix_id
        return prefix_id

    def _evict_oldest(self) -> int:
        block, _ = self._evictable.popitem(last=False)
        content, _ = self._cached.pop(block)
        del self._block_of_content[content]
        return block
