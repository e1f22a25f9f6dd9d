"""What enters the prefix cache when an answer begins, and what only when it ends."""

from types import SimpleNamespace

import pytest

from pdmuxd.engine.loop.requests import AT_ONCE_TOKENS
from pdmuxd.engine.sglang.internals.insertion import checkpoint


class TokenToKVPoolAllocator:
    pass


class SWATokenToKVPoolAllocator:
    pass


@pytest.mark.parametrize(
    ("in_cache", "computed", "allocator", "is_inserted"),
    [
        (0, AT_ONCE_TOKENS - 1, TokenToKVPoolAllocator, False),
        (0, AT_ONCE_TOKENS, TokenToKVPoolAllocator, True),
        (4000, 4000 + AT_ONCE_TOKENS - 1, TokenToKVPoolAllocator, False),
        (4000, 4000 + AT_ONCE_TOKENS, TokenToKVPoolAllocator, True),
        (0, 1, SWATokenToKVPoolAllocator, True),
    ],
)
def test_only_a_prompt_with_much_that_is_new_is_inserted_at_once(in_cache, computed, allocator, is_inserted):
    request = SimpleNamespace(
        extend_end=computed, prefix_len=in_cache, kv=SimpleNamespace(cache_protected_len=in_cache)
    )
    cache = SimpleNamespace(token_to_kv_pool_allocator=allocator())
    inserted = []

    checkpoint(lambda *given: inserted.append(given), request, cache)

    assert inserted == ([(request, cache)] if is_inserted else [])
    assert request.prefix_len == (in_cache if is_inserted else computed)
