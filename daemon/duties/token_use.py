"""Keeps the use of tokens in the database, so that a restart does not refill a budget."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC
from itertools import count

import structlog

from pdmuxd.controlplane.history.ledger import Ledger
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.services.limit_service import USE_AT_ONCE
from pdmuxd.controlplane.services.limit_shares import LimitShares
from pdmuxd.controlplane.tenants.prices import PriceList
from pdmuxd.controlplane.tenants.token_use import WHOLE_TENANT, Tokens, UseOf
from pdmuxd.daemon.duties.unsaved import Unsaved
from pdmuxd.daemon.gateway.limits.limiter import Limiter
from pdmuxd.daemon.gateway.limits.shares import RENEW_S, Shares
from pdmuxd.daemon.process.duty import Duty
from pdmuxd.engine.core.errors import StoreError

PERIOD_S = 1.0
"""What a killed daemon forgets, at most."""
OTHERS_EVERY = 10
"""Every so many periods the use of other nodes is looked up, where there may be any."""

log = structlog.get_logger("pdmuxd.daemon")


def load_use(limiter: Limiter, control_plane: ControlPlane) -> None:
    """Give the limiter what was used this month."""
    first = control_plane.store.clock().astimezone(UTC).date().replace(day=1)
    limiter.load(control_plane.limits.use_since(first))


def catch_up(control_plane: ControlPlane, ledger: Ledger) -> None:
    """Add to today's use what the ledger has and the use has not: a daemon was killed between the two.

    Budgets then count no less than usage, which is what clients saw. Only where no other process writes. What
    the use alone has stays: it counts answers whose records were lost, too. Of keys those with limits are
    counted, as by the limiter. Such tokens cost what they cost now; of several models of a day, the dearest.
    """
    limited = {key.key_id for key in control_plane.directory.keys.values() if key.limits}
    now = control_plane.store.clock().astimezone(UTC)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    counted: dict[UseOf, Tokens] = {}
    models: dict[UseOf, set[str]] = defaultdict(set)
    for (tenant, since_ms, key_id, model), tokens in ledger.sums(start_s=int(midnight.timestamp())).items():
        known = control_plane.directory.tenants.get(tenant)
        if known is not None and known.since_ms == since_ms:
            for of in {WHOLE_TENANT, key_id} if key_id in limited else {WHOLE_TENANT}:
                use = UseOf(tenant, of, now.date())
                counted[use] = counted.get(use, Tokens()).plus(tokens)
                models[use].add(model)
    stored = control_plane.limits.use_since(now.date())
    missing = {use: tokens.beyond(stored.get(use, Tokens())) for use, tokens in counted.items()}
    prices = control_plane.directory.prices
    missing = {
        use: max((_priced(prices, use.tenant, model, tokens) for model in models[use]), key=_cost)
        for use, tokens in missing.items()
        if tokens != Tokens()
    }
    if missing:
        control_plane.limits.add_use(missing)
        log.info("use of tokens that was not stored is counted by the ledger", subjects=len(missing))


def _priced(prices: PriceList, tenant: str, model: str, tokens: Tokens) -> Tokens:
    """Add what tokens cost now; nothing without a price."""
    cost_nanos = prices.nanos(
        tenant,
        model,
        input_tokens=tokens.input_tokens,
        cached_tokens=tokens.cached_tokens,
        output_tokens=tokens.output_tokens,
    )
    return replace(tokens, cost_nanos=cost_nanos or 0)


def _cost(tokens: Tokens) -> int:
    return tokens.cost_nanos


class UseKeeper:
    """Stores what the limiter counted, and tells it what other nodes have."""

    def __init__(self, limiter: Limiter, control_plane: ControlPlane) -> None:
        self._limiter = limiter
        if control_plane.store.is_shared:
            limiter.shares = Shares(LimitShares(control_plane.store))
        self._control_plane = control_plane
        self._turns = count(1)
        self.unsaved = Unsaved()

    async def store(self) -> None:
        """Write what was used since the last time; what cannot be written is tried again with the next."""
        shares = self._limiter.shares
        async with nullcontext() if shares is None else shares.turn:
            await self._store()

    async def _store(self) -> None:
        unsaved = self._limiter.take_unsaved()
        spent = self._limiter.take_spent(unsaved)
        if unsaved:
            self.unsaved.tried()
        try:
            await asyncio.to_thread(self._control_plane.limits.add_use, unsaved, spent)
        except StoreError as error:
            self._limiter.give_back(unsaved)
            if self._limiter.shares is not None:
                self._limiter.shares.unspend(spent)
            log.warning("the use of tokens is not stored", reason=str(error))
            return
        self.unsaved.stored()

    async def count_others(self) -> None:
        """Count today's use of other nodes against budgets; what is not known now will be later."""
        control_plane = self._control_plane
        names = self._limiter.counted_tenants()
        today = control_plane.store.clock().astimezone(UTC).date()
        for start in range(0, len(names), USE_AT_ONCE):
            # Read after what this node has used was stored, and corrected before more of it is.
            await self.store()
            some = names[start : start + USE_AT_ONCE]
            try:
                stored = await asyncio.to_thread(control_plane.limits.use_since, today, tenants=some)
            except StoreError as error:
                log.warning("the use of tokens on other nodes is not known", reason=str(error))
                return
            self._limiter.correct(stored)

    async def turn(self) -> None:
        """One job for both, so that nothing is on its way to the database while it is read."""
        if self._control_plane.store.is_shared and next(self._turns) % OTHERS_EVERY == 0:
            await self.count_others()
        else:
            await self.store()

    async def renew_shares(self) -> None:
        """Go on with the shares of limits that this node needs."""
        if (shares := self._limiter.shares) is not None:
            try:
                await shares.renew()
            except StoreError as error:
                log.warning("shares of limits are not renewed", reason=str(error))

    async def give_back_shares(self) -> None:
        if (shares := self._limiter.shares) is not None:
            try:
                await shares.give_back()
            except StoreError as error:
                log.warning("shares of limits are not given back: they end by themselves", reason=str(error))


def duties(keeper: UseKeeper) -> tuple[Duty, ...]:
    """Store the use every PERIOD_S, and once more at the end."""
    return (
        Duty(
            name="renewing shares of limits",
            work=keeper.renew_shares,
            period_s=RENEW_S,
            at_end=keeper.give_back_shares,
        ),
        Duty(name="storing token use", work=keeper.turn, period_s=PERIOD_S, at_end=keeper.store),
    )
