"""Overload: who is passed over when there is more work than time, so that all suffer by right.

Without a rule the order of slack gives up whom it happens to come to last: long prompts, and every tenant
alike however much one of them sends. Three rules decide before slack, in this order:

- **Class.** Interactive tenants before standard ones before batch.
- **Lot.** Each tenant has a kept share, 1 while all of its requests are in time. It falls with each request
  that comes too late and rises with each that was passed over and served in time all the same. A request's
  lot is a number from 0 to 1 that its id gives, whatever its length; above the kept share it goes behind
  those within it. So the short and the long are given up alike, and who is kept is kept to the end.
- **Share.** What each tenant was given lately is counted in prompt tokens by weight. One that is behind the
  most served by more than a batch goes first, whatever the lot. Who asks for less than its share therefore
  never waits for who asks for more.

A request that is far smaller than those that come too late is never passed over: it would free no time.
Nothing is counted while all are in time.

Sources: kept share and lot, DAGOR (Zhou et al., SoCC 2018, section 4: admission by a threshold on a hash that
follows what was seen of overload); tokens by weight, virtual token counter (Sheng et al., OSDI 2024, section
4), with usage that decays instead of a lift for who returns, as in fair-share schedulers (Kay and Lauder,
CACM 1988): a light tenant's queue is empty often, and each lift would take from it what it is owed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp
from types import MappingProxyType
from zlib import crc32

from pdmuxd.engine.core.slo import PriorityClass
from pdmuxd.engine.core.types import WaitingRequest

LATE_STEP = 0.02
"""What a tenant's kept share loses when one of its requests, not passed over, comes too late."""
SPARE_STEP = 0.01
"""What it gains when a request that was passed over is in time after all."""
LOWEST_SHARE = 0.02
QUANTUM_TOKENS = 8192
"""Prompt tokens by weight that tenants may differ by before the one behind goes first: a batch."""
SMALL_SHARE = 1 / 16
"""Of the usual length of those that come too late: giving up shorter ones would not help them."""
LENGTH_GAIN = 0.1
"""How far that usual length moves towards that of the next one."""
MEMORY_S = 20.0
"""Who has had less than others is put first for about so long. Longer, a tenant could save up for a flood;
shorter, one whose requests come in bursts would count as new each time."""
MAX_TENANTS = 4096
"""Remembered at once; beyond, the least served are forgotten, which favours them by what they have used."""

_RANK: Mapping[PriorityClass, int] = MappingProxyType({"interactive": 0, "standard": 1, "batch": 2})


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantShare:
    """What overload remembers of one tenant."""

    kept_share: float = 1.0
    """Of its requests, by lot, that are not passed over."""
    used_tokens: float = 0.0
    """Prompt tokens by weight that it was given lately: what lies back MEMORY_S counts a third."""


_NEW = TenantShare()


@dataclass(frozen=True, slots=True, kw_only=True)
class Overload:
    """A value: changes give a new one. On while some tenant's kept share is below 1."""

    tenants: Mapping[str, TenantShare] = field(default_factory=dict)
    """Never changed in place."""
    at_s: float = 0.0
    """When `used_tokens` were last counted."""
    late_tokens: float = 0.0
    """Usual new tokens of those that come too late."""

    @property
    def is_on(self) -> bool:
        """Whether there is more work than time."""
        return bool(self.tenants)

    def with_late(self, request: WaitingRequest) -> Overload:
        """A request has become too late."""
        share = self.tenants.get(request.tenant, _NEW)
        late_tokens = self.late_tokens or float(request.new_tokens)
        late_tokens += LENGTH_GAIN * (request.new_tokens - late_tokens)
        kept_share = share.kept_share
        if lot(request.request_id) <= kept_share:
            kept_share = max(LOWEST_SHARE, kept_share - LATE_STEP)
        return Overload(
            tenants={
                **self.tenants,
                request.tenant: TenantShare(kept_share=kept_share, used_tokens=share.used_tokens),
            },
            at_s=self.at_s,
            late_tokens=late_tokens,
        )

    def ordered(self, by_slack: Sequence[WaitingRequest]) -> tuple[list[WaitingRequest], frozenset[str]]:
        """Those that can still make it, given in order of slack, by class, lot and share; and the passed
        over."""
        behind = self.behind(by_slack)
        small_tokens = SMALL_SHARE * self.late_tokens
        passed_over: set[str] = set()
        keyed: list[tuple[int, bool, bool, int, WaitingRequest]] = []
        for index, request in enumerate(by_slack):
            share = self.tenants.get(request.tenant, _NEW)
            is_over = (
                share.kept_share < 1.0
                and request.tenant not in behind
                and request.new_tokens > small_tokens
                and lot(request.request_id) > share.kept_share
            )
            if is_over:
                passed_over.add(request.request_id)
            rank = _RANK[request.priority_class]
            keyed.append((rank, is_over, request.tenant not in behind, index, request))
        keyed.sort()
        return [request for *_, request in keyed], frozenset(passed_over)

    def with_admitted(
        self,
        batch: Sequence[WaitingRequest],
        *,
        now_s: float,
        late: Collection[str],
        passed_over: Collection[str],
        waiting: Sequence[WaitingRequest],
    ) -> Overload:
        """`batch`, of those `waiting`, is prefilled. Off again once every kept share is 1."""
        behind = self.behind(waiting)
        left = exp((self.at_s - now_s) / MEMORY_S)
        tenants = {
            tenant: TenantShare(kept_share=share.kept_share, used_tokens=left * share.used_tokens)
            for tenant, share in self.tenants.items()
        }
        for request in batch:
            share = tenants.get(request.tenant, _NEW)
            kept_share = share.kept_share
            is_spare = request.tenant in behind or request.request_id in passed_over
            if is_spare and request.request_id not in late:
                kept_share = min(1.0, kept_share + SPARE_STEP)
            used_tokens = share.used_tokens + request.new_tokens / request.weight
            tenants[request.tenant] = TenantShare(kept_share=kept_share, used_tokens=used_tokens)
        if all(share.kept_share >= 1.0 for share in tenants.values()):
            return NO_OVERLOAD
        if len(tenants) > MAX_TENANTS:
            tenants = _most_served(tenants)
        return Overload(tenants=tenants, at_s=now_s, late_tokens=self.late_tokens)

    def behind(self, waiting: Sequence[WaitingRequest]) -> Collection[str]:
        """The tenants that were given less than the most served one, by more than a quantum."""
        weights = {request.tenant: request.weight for request in waiting}
        if len(weights) < 2:
            return ()
        used = {tenant: self.tenants.get(tenant, _NEW).used_tokens for tenant in weights}
        most_tokens = max(used.values())
        return {t for t, tokens in used.items() if tokens + QUANTUM_TOKENS / weights[t] < most_tokens}


NO_OVERLOAD = Overload()


def lot(request_id: str) -> float:
    """A number from 0 to 1 that depends on the id alone, the same on every rank and machine."""
    return crc32(request_id.encode()) / 2**32


def _most_served(tenants: Mapping[str, TenantShare]) -> dict[str, TenantShare]:
    kept = sorted(tenants, key=lambda tenant: (-tenants[tenant].used_tokens, tenant))[:MAX_TENANTS]
    return {tenant: tenants[tenant] for tenant in kept}
