"""The KV pool and its prefix cache: a tree of prompt blocks with reference counts and LRU eviction.

Every token of the pool is free, in the tree (shared), or private to one request. A block in use is
locked together with all its ancestors, so only unlocked leaves are ever evicted.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from pdmuxd.engine.core.errors import EngineInvariantError

_STALE_ENTRIES = 64
"""Fewer outdated entries of the LRU heap than this are not worth a pass over it."""


@dataclass(slots=True, eq=False)
class Block:
    """One cached block of prompt tokens."""

    key: int
    parent: Block | None
    tokens: int
    refs: int = 0
    last_used: int = 0
    children: dict[int, Block] = field(default_factory=dict)


@dataclass(slots=True)
class Holding:
    """What one admitted request holds: the locked path of its prompt, and its private tokens."""

    leaf: Block | None
    matched_tokens: int
    private_tokens: int


def _is_leaf_of(entry: tuple[int, int, Block]) -> bool:
    """Whether an entry of the LRU heap is up to date and its block can be evicted."""
    last_used, _, block = entry
    return (
        block.refs == 0 and not block.children and block.last_used == last_used and block.parent is not None
    )


class KvPool:
    """A pool of `capacity_tokens`, with the prefix cache inside it."""

    def __init__(self, capacity_tokens: int, block_tokens: int) -> None:
        self.capacity_tokens = capacity_tokens
        self.block_tokens = block_tokens
        self.tree_tokens = 0
        self.private_tokens = 0
        self.evictable_tokens = 0
        self._root = Block(key=0, parent=None, tokens=0)
        self._clock = 0
        self._lru: list[tuple[int, int, Block]] = []
        """A heap of the unlocked leaves. It also has outdated entries, of leaves that were used again since.
        """
        self._pushes = 0
        self._blocks = 0

    @property
    def free_tokens(self) -> int:
        """Tokens that nobody holds."""
        return self.capacity_tokens - self.tree_tokens - self.private_tokens

    @property
    def available_tokens(self) -> int:
        """Free tokens and those that eviction would free."""
        return self.free_tokens + self.evictable_tokens

    def matched_tokens(self, keys: Sequence[int], input_tokens: int) -> int:
        """Prompt tokens in the cache; at least one token is always left to prefill."""
        return self._tokens_of(self._match(keys, input_tokens))

    def admit(self, keys: Sequence[int], input_tokens: int, produced_tokens: int = 0) -> Holding | None:
        """Lock the cached prefix and take private tokens for the rest of the prompt and what it produced.

        None, and no change, if they do not fit.
        """
        leaf = self._match(keys, input_tokens)
        matched = self._tokens_of(leaf)
        self._lock(leaf)
        private = input_tokens - matched + produced_tokens
        if not self.take(private):
            self._unlock(leaf)
            return None
        return Holding(leaf=leaf, matched_tokens=matched, private_tokens=private)

    def take(self, tokens: int) -> bool:
        """Take private tokens, evicting the least recently used blocks as needed."""
        if tokens > self.available_tokens:
            return False
        while self.free_tokens < tokens:
            self._evict_one()
        self.private_tokens += tokens
        return True

    def publish(self, holding: Holding, keys: Sequence[int], input_tokens: int) -> None:
        """Move a prefilled prompt from private tokens into the tree, where others can find it.

        A block that somebody else published meanwhile is shared, and the private copy is freed.
        """
        if not keys:
            return
        self._clock += 1
        node = holding.leaf or self._root
        position = self._tokens_of(holding.leaf)
        for key in keys[position // self.block_tokens :]:
            tokens = min(self.block_tokens, input_tokens - position)
            child = node.children.get(key)
            if child is None or child.tokens != tokens:
                if child is not None:
                    break
                child = Block(key=key, parent=node, tokens=tokens)
                node.children[key] = child
                self._blocks += 1
                self.tree_tokens += tokens
                self.evictable_tokens += tokens
            holding.private_tokens -= tokens
            self.private_tokens -= tokens
            self._acquire(child)
            node = child
            position += tokens
        holding.leaf = node if node is not self._root else None

    def publish_answer(self, holding: Holding, keys: Sequence[int]) -> None:
        """Move the full blocks of a prompt and its answer into the tree, when the answer is whole.

        `keys` are of both, from the first block on. A block that the prompt filled in part is full now and
        is published anew. While somebody else uses it, it stays as it is, and the answer is not published.
        """
        last = holding.leaf
        if last is not None and last.tokens < self.block_tokens:
            if last.refs > 1 or last.children:
                return
            self._take_back(holding, last)
        full = min(len(keys), (self._tokens_of(holding.leaf) + holding.private_tokens) // self.block_tokens)
        self.publish(holding, keys[:full], full * self.block_tokens)

    def release(self, holding: Holding) -> None:
        """Give back everything; published blocks stay in the cache until evicted."""
        self.private_tokens -= holding.private_tokens
        holding.private_tokens = 0
        self._unlock(holding.leaf)
        holding.leaf = None

    def flush(self) -> None:
        """Evict everything that is not in use."""
        while self.evictable_tokens:
            self._evict_one()

    def check_integrity(self, holdings: Sequence[Holding]) -> None:
        """Recount everything (invariant 8). Raises: EngineInvariantError naming what does not add up."""
        tree = evictable = 0
        stack = list(self._root.children.values())
        while stack:
            block = stack.pop()
            tree += block.tokens
            evictable += block.tokens if block.refs == 0 else 0
            if any(child.refs > block.refs for child in block.children.values()):
                raise EngineInvariantError("a cached block is locked less than its child")
            stack.extend(block.children.values())
        private = sum(h.private_tokens for h in holdings)
        counted = (tree, evictable, private)
        kept = (self.tree_tokens, self.evictable_tokens, self.private_tokens)
        if counted != kept or self.free_tokens < 0:
            raise EngineInvariantError(
                f"KV tokens (tree, evictable, private): counted {counted}, kept {kept}"
            )

    def _match(self, keys: Sequence[int], input_tokens: int) -> Block | None:
        node, position = self._root, 0
        for key in keys:
            child = node.children.get(key)
            if child is None or child.tokens != min(self.block_tokens, input_tokens - position):
                break
            if position + child.tokens >= input_tokens:
                break
            node = child
            position += child.tokens
        return node if node is not self._root else None

    @staticmethod
    def _tokens_of(leaf: Block | None) -> int:
        tokens, node = 0, leaf
        while node is not None:
            tokens += node.tokens
            node = node.parent
        return tokens

    def _take_back(self, holding: Holding, last: Block) -> None:
        """Make the last block of a path, which nobody else uses, private again."""
        parent = last.parent
        assert parent is not None  # noqa: S101 - a narrowing for mypy; only the root has none
        del parent.children[last.key]
        last.parent = None
        self._blocks -= 1
        self.tree_tokens -= last.tokens
        self.private_tokens += last.tokens
        holding.private_tokens += last.tokens
        holding.leaf = parent if parent is not self._root else None

    def _acquire(self, block: Block) -> None:
        if block.refs == 0:
            self.evictable_tokens -= block.tokens
        block.refs += 1
        block.last_used = self._clock

    def _lock(self, leaf: Block | None) -> None:
        self._clock += 1
        node = leaf
        while node is not None and node is not self._root:
            self._acquire(node)
            node = node.parent

    def _unlock(self, leaf: Block | None) -> None:
        node = leaf
        while node is not None and node is not self._root:
            node.refs -= 1
            if node.refs == 0:
                self.evictable_tokens += node.tokens
                self._offer(node)
            node = node.parent

    def _offer(self, block: Block) -> None:
        """Put an unlocked leaf up for eviction."""
        if block.refs == 0 and not block.children and block is not self._root:
            self._pushes += 1
            heapq.heappush(self._lru, (block.last_used, self._pushes, block))
            if len(self._lru) > 2 * self._blocks + _STALE_ENTRIES:
                self._drop_stale_entries()

    def _drop_stale_entries(self) -> None:
        """Remove outdated entries after every so many pushes, at least half of the heap's length: so memory
        is bounded by the number of blocks."""
        self._lru = [entry for entry in self._lru if _is_leaf_of(entry)]
        heapq.heapify(self._lru)

    def _evict_one(self) -> None:
        entry = heapq.heappop(self._lru)
        while not _is_leaf_of(entry):
            entry = heapq.heappop(self._lru)
        block = entry[2]
        parent = block.parent
        assert parent is not None  # noqa: S101 - a narrowing for mypy; `_is_leaf_of` covers it
        self._blocks -= 1
        del parent.children[block.key]
        block.parent = None
        self.tree_tokens -= block.tokens
        self.evictable_tokens -= block.tokens
        self._offer(parent)
