"""Keeps the use of tokens in the database, so that a restart does not refill a budget."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC

import structlog

from pdmuxd.controlplane.services import ControlPlane
from pdmuxd.daemon.background import periodically
from pdmuxd.daemon.gateway.limits.limiter import Limiter
from pdmuxd.engine.core.errors import StoreError

PERIOD_S = 1.0
"""What a killed daemon forgets, at most."""

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


def start_storing_use(stack: AsyncExitStack, limiter: Limiter, control_plane: ControlPlane) -> None:
    """Store the use every PERIOD_S until `stack` is left, and once more then."""
    stack.push_async_callback(store_use, limiter, control_plane)
    periodically(
        stack, lambda: store_use(limiter, control_plane), period_s=PERIOD_S, name="storing the use of tokens"
    )
