"""Overload: who is passed over when there is more work than time, so that all suffer by right.

Without a rule the order of slack gives up whom it happens to come to last: long prompts, and every tenant
alike however much one of them sends. Three rules decide before slack, in this order:

- **Class.** Interactive tenants before standard ones before batch.
- **Lot.** Each tenant has a kept share, 1 while all of its requests are in time. It falls with each request
  that comes too late, and rises with each that was passed over and served in time all the same, and by a
  little with each other one in time, so that few that are late are no overload. A request's
  lot is a number from 0 to 1 that its id gives, whatever its length; above the kept share it goes behind
  those within it. So the short and the long are given up alike, and who is kept is kept to the end.
- **Share.** What each tenant was given lately is counted in prompt tokens by weight. One that is behind the
  most served by more than a batch goes first, whatever the lot. Who asks for less than its share therefore
  never waits for who asks for more.

A request that is far smaller than those that come too late is never passed over: it would free no time.
Nothing is counted while all are in time.

Sources: kept share and lot, DAGOR (Zhou et al., SoCC 2018, section 4: admission by a threshold on a hash that
follows what was seen of overload); tokens by weight, virtual token counter (Sheng et al., OSDI 2024, section
4), but a tenant that returns is not lifted to the others' count. Its usage decays instead, as in
fair-share schedulers (Kay and Lauder, CACM 1988): a light tenant's queue is often empty, and with each lift
it would lose the precedence that it has earned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import exp
from types import MappingProxyType
from zlib import crc32

from pdmuxd.engine.core.slo import PriorityClass
from pdmuxd.engine.core.types import WaitingRequest

LATE_STEP = 0.02
"""What a tenant's kept share loses when one of its requests, not passed over, comes too late."""
SPARE_STEP = 0.01
"""What it gains when a request that was passed over is in time after all."""
LATE_ALLOWED = 0.05
"""The share of requests that may come too late before lots decide: a request in time makes up for this part
of what a late one costs. Without it one burst had some passed over for minutes, who came too late though
there was time for them (docs/measurements/README.md, "The last percent")."""
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
MAX_LOTS = 4096
"""Lots that are remembered: a decision asks for the lot of every request that waits."""

_RANK: Mapping[PriorityClass, int] = MappingProxyType({"interactive": 0, "standard": 1, "batch": 2})


@dataclass(frozen=True, slots=True, kw_only=True)
class Overload:
    """A value: changes give a new one. On while some tenant's kept share is below 1."""

    kept_shares: Mapping[str, float] = field(default_factory=dict)
    """By tenant, the part of its requests, by lot, that is not passed over; a missing tenant has 1."""
    used_tokens: Mapping[str, float] = field(default_factory=dict)
    """By tenant, prompt tokens by weight that it was given lately: what lies back MEMORY_S counts a third.
    Like the other, never changed in place."""
    at_s: float = 0.0
    """When `used_tokens` were last counted."""
    late_tokens: float = 0.0
    """Usual new tokens of those that come too late."""

    @property
    def is_on(self) -> bool:
        """Whether there is more work than time."""
        return bool(self.kept_shares)

    def with_late(self, requests: Iterable[WaitingRequest]) -> Overload:
        """The value when these have become too late."""
        kept_shares, used_tokens = dict(self.kept_shares), dict(self.used_tokens)
        late_tokens = self.late_tokens
        for request in requests:
            late_tokens = late_tokens or float(request.new_tokens)
            late_tokens += LENGTH_GAIN * (request.new_tokens - late_tokens)
            kept_share = kept_shares.get(request.tenant, 1.0)
            if lot(request.request_id) <= kept_share:
                kept_shares[request.tenant] = max(LOWEST_SHARE, kept_share - LATE_STEP)
            used_tokens.setdefault(request.tenant, 0.0)
        return Overload(
            kept_shares=kept_shares, used_tokens=used_tokens, at_s=self.at_s, late_tokens=late_tokens
        )

    def ordered(
        self, by_slack: Sequence[WaitingRequest], behind: Collection[str] | None = None
    ) -> tuple[list[WaitingRequest], frozenset[str]]:
        """Order those that can still make it, given in order of slack, by class, lot and share; and the
        passed over. `behind`: the tenants below their share, if that is not one of prompt tokens."""
        if behind is None:
            behind = self.behind(by_slack)
        kept_shares = self.kept_shares
        small_tokens = SMALL_SHARE * self.late_tokens
        passed_over: list[str] = []
        lines: list[list[WaitingRequest]] = [[] for _ in range(4 * len(_RANK))]
        for request in by_slack:
            tenant, line = request.tenant, 4 * _RANK[request.priority_class]
            if tenant not in behind:
                line += 1
                kept_share = kept_shares.get(tenant, 1.0)
                if (
                    kept_share < 1.0
                    and request.new_tokens > small_tokens
                    and lot(request.request_id) > kept_share
                ):
                    line += 2
                    passed_over.append(request.request_id)
            lines[line].append(request)
        return [request for line in lines for request in line], frozenset(passed_over)

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
        used_tokens = {tenant: left * tokens for tenant, tokens in self.used_tokens.items()}
        kept_shares = dict(self.kept_shares)
        for request in batch:
            tenant = request.tenant
            if request.request_id not in late:
                is_spare = tenant in behind or request.request_id in passed_over
                kept_share = kept_shares.get(tenant, 1.0)
                kept_share += SPARE_STEP if is_spare else LATE_ALLOWED * LATE_STEP
                if kept_share < 1.0:
                    kept_shares[tenant] = kept_share
                else:
                    kept_shares.pop(tenant, None)
            used_tokens[tenant] = used_tokens.get(tenant, 0.0) + request.new_tokens / request.weight
        if len(used_tokens) > MAX_TENANTS:
            used_tokens = _most_served(used_tokens)
            kept_shares = {tenant: share for tenant, share in kept_shares.items() if tenant in used_tokens}
        if not kept_shares:
            return NO_OVERLOAD
        return Overload(
            kept_shares=kept_shares, used_tokens=used_tokens, at_s=now_s, late_tokens=self.late_tokens
        )

    def behind(self, waiting: Sequence[WaitingRequest]) -> Collection[str]:
        """The tenants that were given less than the most served one, by more than a quantum."""
        weights = {request.tenant: request.weight for request in waiting}
        if len(weights) < 2:
            return ()
        used = {tenant: self.used_tokens.get(tenant, 0.0) for tenant in weights}
        most_tokens = max(used.values())
        return {t for t, tokens in used.items() if tokens + QUANTUM_TOKENS / weights[t] < most_tokens}


NO_OVERLOAD = Overload()


@lru_cache(maxsize=MAX_LOTS)
def lot(request_id: str) -> float:
    """A number from 0 to 1 that depends on the id alone, the same on every rank and machine."""
    return crc32(request_id.encode()) / 2**32


def _most_served(used_tokens: Mapping[str, float]) -> dict[str, float]:
    kept = sorted(used_tokens, key=lambda tenant: (-used_tokens[tenant], tenant))[:MAX_TENANTS]
    return {tenant: used_tokens[tenant] for tenant in kept}
