"""Keeps the use of tokens in the database, so that a restart does not refill a budget."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from datetime import UTC
from itertools import count

import structlog

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.services.limit_service import USE_AT_ONCE
from pdmuxd.daemon.gateway.limits.limiter import Limiter
from pdmuxd.daemon.process.background import periodically
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


async def store_use(limiter: Limiter, control_plane: ControlPlane) -> None:
    """Write what was used since the last time; what cannot be written is tried again with the next."""
    unsaved = limiter.take_unsaved()
    try:
        await asyncio.to_thread(control_plane.limits.add_use, unsaved)
    except StoreError as error:
        limiter.give_back(unsaved)
        log.warning("the use of tokens is not stored", reason=str(error))


async def count_others(limiter: Limiter, control_plane: ControlPlane) -> None:
    """Count today's use of other nodes against budgets; what is not known now will be later."""
    names = limiter.counted_tenants()
    today = control_plane.store.clock().astimezone(UTC).date()
    for start in range(0, len(names), USE_AT_ONCE):
        # Read after what this node has used was stored, and corrected before more of it is.
        await store_use(limiter, control_plane)
        some = names[start : start + USE_AT_ONCE]
        try:
            stored = await asyncio.to_thread(control_plane.limits.use_since, today, tenants=some)
        except StoreError as error:
            log.warning("the use of tokens on other nodes is not known", reason=str(error))
            return
        limiter.correct(stored)


async def _store(limiter: Limiter, control_plane: ControlPlane, turn: Iterator[int]) -> None:
    """One job for both, so that nothing is on its way to the database while it is read."""
    if control_plane.store.is_shared and next(turn) % OTHERS_EVERY == 0:
        await count_others(limiter, control_plane)
    else:
        await store_use(limiter, control_plane)


def start_storing_use(stack: AsyncExitStack, limiter: Limiter, control_plane: ControlPlane) -> None:
    """Store the use every PERIOD_S until `stack` is left, and once more then."""
    stack.push_async_callback(store_use, limiter, control_plane)
    turn = count(1)
    periodically(
        stack,
        lambda: _store(limiter, control_plane, turn),
        period_s=PERIOD_S,
        name="storing token use",
    )
