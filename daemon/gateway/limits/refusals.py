"""What a request is told that a limit keeps out, and how long one waits for its turn."""

from __future__ import annotations

import asyncio
import contextlib
import math

from pdmuxd.controlplane.tenants.records import Identity
from pdmuxd.daemon.gateway.limits.meter import TOKEN_LIMITS, Block
from pdmuxd.engine.core.errors import RequestError

DEFAULT_WAIT_S = 30.0
"""The longest wait for a turn, for tenants that set none."""


def longest_wait_s(identity: Identity) -> float:
    """How long a request may wait for its turn."""
    tenant_ms = identity.tenant.max_wait_ms
    wait_s = DEFAULT_WAIT_S if tenant_ms is None else tenant_ms / 1000
    return min([wait_s, *key_wait_s(identity)])


def key_wait_s(identity: Identity) -> list[float]:
    """The longest wait that the key allows; None if it says nothing."""
    return [limit.value / 1000 for limit in identity.key.limits if limit.name == "max_wait_ms"]


def refusal(block: Block, *, waited_s: float | None = None) -> RequestError:
    """The answer to a request that a limit keeps out: which limit, its value, what is used, when to retry."""
    limit, retry_after_s = block.limit, max(1, math.ceil(block.retry_s))
    more = ""
    if limit.name in TOKEN_LIMITS:
        more = f" and {block.reserved} reserved for requests in flight; this one may use {block.wanted}"
    waited = "" if waited_s is None else f"; it waited {waited_s:g} s for its turn"
    return RequestError(
        f"{limit.name} of {block.of} is {limit.value}, and {block.used} are used{more}{waited}; "
        f"try again in {retry_after_s} s",
        status=429,
        code=limit.name,
        retry_after_s=retry_after_s,
        details={
            "limit": {
                "name": limit.name,
                "of": block.of,
                "value": limit.value,
                "used": block.used,
                "reserved": block.reserved,
                "may_use": block.wanted,
                "retry_after_s": retry_after_s,
            }
        },
    )


async def change_of(block: Block, *, at_most_s: float | None = None) -> None:
    """Wait until there may be room: until something was given back, or until enough time has passed."""
    wait_s = block.retry_s if at_most_s is None else min(block.retry_s, at_most_s)
    block.meter.changed.clear()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(0.01, wait_s)):
            await block.meter.changed.wait()
