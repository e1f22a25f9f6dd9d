"""This node's shares of limits, where several nodes share one database: what it may use without asking.

A node asks the database for more when a request does not fit into its share, and gives back what it does not
need every RENEW_S. So an admission costs a look at the database now and then, not each time, and all nodes
together stay within the limit; only the one request that may pass it (`meter.py`) is one on each node.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date

import structlog

from pdmuxd.controlplane.services.limit_shares import LEASE, Account, LimitShares
from pdmuxd.controlplane.tenants.limit_values import BOUNDS, Limit, LimitName
from pdmuxd.engine.core.errors import StoreError

RENEW_S = 10.0
_TRUSTED_S = LEASE.total_seconds() - RENEW_S
"""Without a word from the database a share is used for so long: before the others may have it."""
_ASK_AGAIN_S = 0.5
"""After an answer that was less than asked for: the others give back every RENEW_S, and a flood of requests
must not become one of questions."""
SPARE_PARTS = 8
"""A share is this part of the limit larger than what is used of it: that many questions fill a limit."""

log = structlog.get_logger("pdmuxd.limits")


@dataclass(slots=True, kw_only=True)
class _Share:
    account: Account
    held: Callable[[], int]
    """What of it is used or reserved now."""
    amount: int = 0
    trusted_until_s: float = float("-inf")
    refused_s: float = float("-inf")
    """When less than was asked for was given."""


def period_of(name: LimitName, today: date) -> date | None:
    """The first day of a budget's period; None for other limits."""
    if name.endswith("_per_day"):
        return today
    return today.replace(day=1) if name.endswith("_per_month") else None


def name_of(name: LimitName, first: date | None) -> str:
    """What the share is called in the database: a budget's ends with its period."""
    return name if first is None else f"{name}@{first.isoformat()}"


class Shares:
    """Lives in the event loop; the database is asked in threads."""

    def __init__(self, store: LimitShares, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._shares: dict[tuple[str, str], _Share] = {}
        self._nodes = 1
        self.turn = asyncio.Lock()
        """Held while the database is asked or use is stored: a share that is given while what was spent of it
        is on its way would be larger here than there, and the limit passed by that much."""

    def narrowed(self, subject: str, limit: Limit, *, today: date, stored: int) -> Limit:
        """The limit as far as this node may use it; of a budget `stored` is what is stored as used."""
        if limit.name in BOUNDS:
            return limit
        share = self._shares.get((subject, name_of(limit.name, period_of(limit.name, today))))
        return replace(limit, value=min(limit.value, stored + (0 if share is None else self._amount(share))))

    def may_grow(self, subject: str, limit: Limit, today: date) -> bool:
        """Whether it is worth asking for more."""
        share = self._shares.get((subject, name_of(limit.name, period_of(limit.name, today))))
        return share is None or self._clock() - share.refused_s > _ASK_AGAIN_S

    async def grow(self, account: Account, *, needed: int, held: Callable[[], int]) -> bool:
        """Ask for a share of `needed`, and a little more; whether it is larger now."""
        key = account.subject, account.name
        share, asked_s = self._shares.get(key), self._clock()
        before = 0 if share is None else self._amount(share)
        if share is None:
            share = self._shares[key] = _Share(account=account, held=held)
        share.account = account
        wanted = min(account.value, needed + account.value // SPARE_PARTS)
        try:
            async with self.turn:
                share.amount = await asyncio.to_thread(self._store.ask, account, wanted)
        except StoreError as error:
            log.warning("the share of a limit is not known", limit=account.name, reason=str(error))
            share.refused_s = asked_s
            return self._amount(share) > before
        share.trusted_until_s = asked_s + _TRUSTED_S
        if share.amount < needed:
            share.refused_s = self._clock()
        return share.amount > before or share.amount >= needed

    async def renew(self) -> None:
        """Go on with what is needed and give the rest back. Raises: StoreError."""
        async with self.turn:
            await self._renew()

    async def _renew(self) -> None:
        kept = {}
        for key, share in list(self._shares.items()):
            held = share.held()
            share.amount = min(share.amount, held + (share.account.value // SPARE_PARTS if held else 0))
            kept[key] = share.amount
        asked_s = self._clock()
        if not kept:
            return
        ended = await asyncio.to_thread(self._store.renew, kept)
        self._nodes = await asyncio.to_thread(self._store.nodes)
        for key, share in list(self._shares.items()):
            if key in ended or not (kept.get(key) or share.amount):
                del self._shares[key]
            elif key in kept:
                share.trusted_until_s = asked_s + _TRUSTED_S

    async def give_back(self) -> None:
        """Keep, at the end, what was used within windows, and nothing else. Raises: StoreError."""
        for share in self._shares.values():
            share.amount = min(share.amount, share.held())
        kept = {key: share.amount for key, share in self._shares.items()}
        if kept:
            await asyncio.to_thread(self._store.renew, kept)

    def spend(self, subject: str, day: date, amounts: Mapping[LimitName, int]) -> list[tuple[str, str, int]]:
        """Use of a day is about to be stored: shares of its budgets become smaller; by how much each."""
        spent = []
        for name, amount in amounts.items():
            key = subject, name_of(name, period_of(name, day))
            if (share := self._shares.get(key)) is not None:
                by = min(amount, share.amount)
                share.amount -= by
                spent.append((*key, by))
        return spent

    def unspend(self, spent: list[tuple[str, str, int]]) -> None:
        """Take use back that was not stored after all."""
        for subject, name, amount in spent:
            if (share := self._shares.get((subject, name))) is not None:
                share.amount += amount

    def _amount(self, share: _Share) -> int:
        """Cut off from the database for longer than its share is its own, a node takes an equal part."""
        if self._clock() <= share.trusted_until_s:
            return share.amount
        return share.account.value // self._nodes
