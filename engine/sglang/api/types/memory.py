"""The KV pool and the prefix cache."""

from __future__ import annotations

from typing import Any, Protocol

from pdmuxd.engine.sglang.api.types.device import Tensor


class PrefixCache(Protocol):
    """The radix tree of cached prompts."""

    token_to_kv_pool_allocator: KvAllocator

    def evictable_size(self) -> int: ...

    def protected_size(self) -> int: ...

    def total_size(self) -> int: ...

    def evict(self, params: Any, /) -> object: ...


class KvAllocator(Protocol):
    """The KV pool's free slots."""

    def available_size(self) -> int: ...

    def get_kvcache(self) -> object: ...


class RequestPool(Protocol):
    """Which KV slots each running request has."""

    req_to_token: Tensor
    """(rows, slots), int32."""
