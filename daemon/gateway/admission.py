"""How many answers may be in flight, in all and per tenant: a request counts prompts times choices.

The places of the node are shared by weight among the tenants that hold any. Within its share a tenant finds a
place as long as one is free. Beyond it a tenant borrows what nobody uses, but leaves `HEADROOM` free: so one
that comes, or comes back, finds places at once, and the rest of its share as soon as what was borrowed ends.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

from pdmuxd.engine.core.errors import RequestError
from pdmuxd.engine.core.slo import DEFAULT_WEIGHT

RETRY_AFTER_S = 1
HEADROOM = 1 / 4
"""The part of all places that stays free for tenants that may come: no tenant borrows it beyond its own
share."""


class Admission:
    """Counts places, one for each answer; every `enter` that returns is matched by one `leave`."""

    def __init__(self, max_in_flight: int) -> None:
        self._max_in_flight = max_in_flight
        self._by_tenant: Counter[str] = Counter()
        self._weights: dict[str, float] = {}
        """By tenant that holds places."""
        self._weights_sum = 0.0
        self._known_tenants = 0
        self._total = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def max_in_flight(self) -> int:
        """Places in all."""
        return self._max_in_flight

    def use_max(self, max_in_flight: int) -> None:
        """Let at most so many be in flight from now on. Requests that are in flight already stay."""
        self._max_in_flight = max_in_flight

    @property
    def in_flight(self) -> int:
        """Places that are held."""
        return self._total

    def by_tenant(self) -> Mapping[str, int]:
        """Places per tenant, of those that hold any."""
        return dict(self._by_tenant)

    def expect(self, known_tenants: int) -> None:
        """How many tenants there are. One that holds no place may come at any time."""
        self._known_tenants = known_tenants

    def share(self, tenant: str, weight: float = DEFAULT_WEIGHT) -> int:
        """How many places are the tenant's own now: a share by weight among the tenants that hold any.

        While some tenant holds none, one more tenant is counted, so that a share is free when it comes.
        """
        others = self._weights_sum - self._weights.get(tenant, 0.0)
        active = len(self._weights) + (tenant not in self._weights)
        if self._known_tenants > active:
            others += DEFAULT_WEIGHT
        return max(1, int(self._max_in_flight * weight / (weight + others)))

    def enter(self, tenant: str, tenant_max: int, *, weight: float = DEFAULT_WEIGHT) -> None:
        """Take the first place of a request, before its body is read.

        Raises: RequestError 429 saying whose limit was reached.
        """
        self._take(tenant, 1, tenant_max, weight)
        self._idle.clear()

    def grow(self, tenant: str, tenant_max: int, *, outputs: int, weight: float = DEFAULT_WEIGHT) -> None:
        """Take the other places of a request, which turned out to make `outputs` answers.

        Raises: RequestError 400 if its tenant may never have so many, 429 if they are not free now; then
        the request still has its first place.
        """
        if outputs > tenant_max:
            raise RequestError(
                f"the request makes {outputs} answers; tenant {tenant} may have {tenant_max} in flight",
                status=400,
                code="too_many_outputs",
            )
        if outputs > 1:
            self._take(tenant, outputs - 1, tenant_max, weight)

    def leave(self, tenant: str, places: int = 1) -> None:
        """Give the places of a request back."""
        self._total -= places
        self._by_tenant[tenant] -= places
        if not self._by_tenant[tenant]:
            del self._by_tenant[tenant]
            self._weights_sum -= self._weights.pop(tenant)
            if not self._weights:
                self._weights_sum = 0.0  # what rounding left
        if not self._total:
            self._idle.set()

    def _take(self, tenant: str, places: int, tenant_max: int, weight: float) -> None:
        held = self._by_tenant.get(tenant, 0)
        if held + places > tenant_max:
            raise _full(
                f"tenant {tenant} may have {tenant_max} answers in flight, its limit (max_in_flight); "
                f"{held} are",
                "tenant_limit",
            )
        left = self._max_in_flight - self._total - places
        share = self.share(tenant, weight)
        spare = int(self._max_in_flight * HEADROOM) if self._known_tenants > 1 else 0
        if left < 0 or (held + places > share and left < spare):
            raise _full(
                f"{self._total} answers are in flight on this node, whose limit is {self._max_in_flight} "
                f"(data.max_in_flight); tenant {tenant} has {held}, its share by weight is {share}",
                "node_limit",
            )
        self._total += places
        self._by_tenant[tenant] = held + places
        self._weights_sum += weight - self._weights.get(tenant, 0.0)
        self._weights[tenant] = weight

    async def wait_idle(self) -> None:
        """Wait until nobody holds a place."""
        await self._idle.wait()


def _full(message: str, code: str) -> RequestError:
    return RequestError(message, status=429, code=code, retry_after_s=RETRY_AFTER_S)
