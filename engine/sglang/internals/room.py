"""Room for long prompts, made in the prefix cache a slice per turn, before they are launched.

SGLang evicts when it forms a batch, all that the batch needs at once and leaf by leaf: some 50 us of the host
each, 6 ms for 16,000 tokens of short answers, 20 ms for 64,000 (`tests/lab evictions`). All that decode wait
for that. What is evicted here would have been evicted then.
"""

from __future__ import annotations

from pdmuxd.engine.sglang.api.symbols import sglang
from pdmuxd.engine.sglang.api.types.memory import KvAllocator
from pdmuxd.engine.sglang.api.types.scheduler import Scheduler

SLICE_TOKENS = 2048
"""Evicted in one turn, at most: about a millisecond of the host where leaves have 150 tokens."""
_PLAIN = ("TokenToKVPoolAllocator", "PagedTokenToKVPoolAllocator")
"""SGLang's allocators of one pool. Those of several count their sizes each."""
_FORGET = 0.999
"""Of the reserve, per turn: half is forgotten after some 700 turns, ten seconds of decode steps of 15 ms."""
_MOST_OF_POOL = 1 / 16
"""The reserve's greatest share of the pool: what it holds cannot be found in the cache."""


def has_one_pool(allocator: KvAllocator) -> bool:
    """Whether all layers keep every token of a request, as they do without windows and states."""
    return type(allocator).__name__ in _PLAIN


class Room:
    """Room of one scheduler. Every rank has the same queue and pool, and so evicts the same."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._s = scheduler
        self._evict_params = sglang().EvictParams
        self._reserve_tokens = 0.0
        """As large as the longest prompt of late: the next one is launched as soon as it comes."""

        self._is_plain = has_one_pool(scheduler.token_to_kv_pool_allocator)

    def note(self, tokens: int) -> None:
        """A prefill of so many tokens was formed."""
        self._reserve_tokens = max(self._reserve_tokens, float(tokens))

    def make(self) -> int:
        """Evict a slice, if prompts as long as those of late would need it; the tokens that were evicted."""
        s = self._s
        self._reserve_tokens *= _FORGET
        if not self._is_plain or self._reserve_tokens < SLICE_TOKENS:
            return 0
        wanted = min(int(self._reserve_tokens), int(s.max_total_num_tokens * _MOST_OF_POOL))
        allocator, cache = s.token_to_kv_pool_allocator, s.tree_cache
        short = wanted - int(allocator.available_size())
        if short <= 0 or not cache.evictable_size():
            return 0
        tokens = min(short, SLICE_TOKENS)
        cache.evict(self._evict_params(num_tokens=tokens))
        return tokens
