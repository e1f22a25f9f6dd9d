"""Short prompts enter SGLang's prefix cache with their answer, when that ends, and not before as well.

SGLang inserts a prompt when its answer begins, and inserts prompt and answer when that ends. At 150 short
chats a second this is what its scheduler's thread does most besides launching.
"""

from __future__ import annotations

from collections.abc import Callable

from pdmuxd.engine.loop.requests import enters_cache_at_once
from pdmuxd.engine.sglang.api.types.memory import PrefixCache
from pdmuxd.engine.sglang.api.types.requests import Request
from pdmuxd.engine.sglang.internals.room import has_one_pool


def checkpoint(original: Callable[..., object], request: Request, cache: PrefixCache) -> None:
    """Wraps SGLang's insertion of what an unfinished request has computed so far."""
    computed = request.extend_end or 0
    is_long = enters_cache_at_once(computed - request.kv.cache_protected_len)
    if is_long or not has_one_pool(cache.token_to_kv_pool_allocator):
        original(request, cache)
        return
    # As SGLang does for a request that is barred from its cache.
    request.prefix_len = computed
