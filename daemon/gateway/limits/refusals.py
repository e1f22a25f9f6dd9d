"""What a request is told that a limit keeps out, and how long one waits for its turn."""

from __future__ import annotations

import asyncio
import contextlib
import math

from pdmuxd.controlplane.tenants.limit_values import SPEND, LimitName
from pdmuxd.controlplane.tenants.prices import NANOS_PER_CENT
from pdmuxd.controlplane.tenants.records import Identity
from pdmuxd.daemon.gateway.limits.meter import RESERVED, Block
from pdmuxd.engine.core.errors import RequestError

READ_AND_REFUSED = frozenset({400, 408, 413, 415, 422})
"""Statuses of requests that were read, most of the host's work for one, and went no further."""
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
    name, retry_after_s = block.limit.name, max(1, math.ceil(block.retry_s))
    value, used, reserved, wanted = (
        shown(name, amount) for amount in (block.limit.value, block.used, block.reserved, block.wanted)
    )
    more = ""
    if name in RESERVED:
        more = f" and {reserved} reserved for requests in flight; this one may use {wanted}"
    waited = "" if waited_s is None else f"; it waited {waited_s:g} s for its turn"
    return RequestError(
        f"{name} of {block.of} is {value}, and {used} are used{more}{waited}; try again in {retry_after_s} s",
        status=429,
        code=name,
        retry_after_s=retry_after_s,
        details={
            "limit": {
                "name": name,
                "of": block.of,
                "value": value,
                "used": used,
                "reserved": reserved,
                "may_use": wanted,
                "retry_after_s": retry_after_s,
            }
        },
    )


def shown(name: LimitName, amount: int) -> int:
    """Show a limit as users read it: of money cents, rounded up, for what is counted in billionths."""
    return -(-amount // NANOS_PER_CENT) if name in SPEND else amount


async def change_of(block: Block, *, at_most_s: float | None = None) -> None:
    """Wait until there may be room: until something was given back, or until enough time has passed."""
    wait_s = block.retry_s if at_most_s is None else min(block.retry_s, at_most_s)
    block.meter.changed.clear()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(0.01, wait_s)):
            await block.meter.changed.wait()
