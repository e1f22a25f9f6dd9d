"""How many requests may be in flight, in all and per tenant."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

from pdmuxd.engine.core.errors import RequestError

RETRY_AFTER_S = 1


class Admission:
    """Counts places; every `enter` that returns is matched by one `leave`."""

    def __init__(self, max_in_flight: int) -> None:
        self._max_in_flight = max_in_flight
        self._by_tenant: Counter[str] = Counter()
        self._total = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def in_flight(self) -> int:
        """Requests that hold a place."""
        return self._total

    def by_tenant(self) -> Mapping[str, int]:
        """Places per tenant, of those that hold any."""
        return dict(self._by_tenant)

    def enter(self, tenant: str, tenant_max: int) -> None:
        """Take a place.

        Raises: RequestError 429 saying whose limit was reached.
        """
        if self._by_tenant[tenant] >= tenant_max:
            raise _full(f"tenant {tenant} has {tenant_max} requests in flight, its limit", "tenant_limit")
        if self._total >= self._max_in_flight:
            raise _full(f"{self._total} requests are in flight, the limit of this node", "node_limit")
        self._total += 1
        self._by_tenant[tenant] += 1
        self._idle.clear()

    def leave(self, tenant: str) -> None:
        """Give the place back."""
        self._total -= 1
        self._by_tenant[tenant] -= 1
        if not self._by_tenant[tenant]:
            del self._by_tenant[tenant]
        if not self._total:
            self._idle.set()

    async def wait_idle(self) -> None:
        """Wait until nobody holds a place."""
        await self._idle.wait()


def _full(message: str, code: str) -> RequestError:
    return RequestError(message, status=429, code=code, retry_after_s=RETRY_AFTER_S)
