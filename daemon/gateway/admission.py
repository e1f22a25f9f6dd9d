"""How many answers may be in flight, in all and per tenant: a request counts prompts times choices."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

from pdmuxd.engine.core.errors import RequestError

RETRY_AFTER_S = 1


class Admission:
    """Counts places, one for each answer; every `enter` that returns is matched by one `leave`."""

    def __init__(self, max_in_flight: int) -> None:
        self._max_in_flight = max_in_flight
        self._by_tenant: Counter[str] = Counter()
        self._total = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def max_in_flight(self) -> int:
        """Places in all."""
        return self._max_in_flight

    def use_max(self, max_in_flight: int) -> None:
        """From now on so many may be in flight; those that are stay."""
        self._max_in_flight = max_in_flight

    @property
    def in_flight(self) -> int:
        """Places that are held."""
        return self._total

    def by_tenant(self) -> Mapping[str, int]:
        """Places per tenant, of those that hold any."""
        return dict(self._by_tenant)

    def enter(self, tenant: str, tenant_max: int) -> None:
        """Take the first place of a request, before its body is read.

        Raises: RequestError 429 saying whose limit was reached.
        """
        self._take(tenant, 1, tenant_max)
        self._idle.clear()

    def grow(self, tenant: str, tenant_max: int, *, outputs: int) -> None:
        """Take the other places of a request, which turned out to make `outputs` answers.

        Raises: RequestError 422 if its tenant may never have so many, 429 if they are not free now; then
        the request still has its first place.
        """
        if outputs > tenant_max:
            raise RequestError(
                f"the request makes {outputs} answers; tenant {tenant} may have {tenant_max} in flight",
                status=422,
                code="too_many_outputs",
            )
        self._take(tenant, outputs - 1, tenant_max)

    def leave(self, tenant: str, places: int = 1) -> None:
        """Give the places of a request back."""
        self._total -= places
        self._by_tenant[tenant] -= places
        if not self._by_tenant[tenant]:
            del self._by_tenant[tenant]
        if not self._total:
            self._idle.set()

    def _take(self, tenant: str, places: int, tenant_max: int) -> None:
        if self._by_tenant[tenant] + places > tenant_max:
            raise _full(f"tenant {tenant} may have {tenant_max} answers in flight, its limit", "tenant_limit")
        if self._total + places > self._max_in_flight:
            raise _full(f"{self._total} answers are in flight, the limit of this node", "node_limit")
        self._total += places
        self._by_tenant[tenant] += places

    async def wait_idle(self) -> None:
        """Wait until nobody holds a place."""
        await self._idle.wait()


def _full(message: str, code: str) -> RequestError:
    return RequestError(message, status=429, code=code, retry_after_s=RETRY_AFTER_S)
