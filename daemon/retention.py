"""Deletes what is older than it has to be kept: entries of the audit, and the use of tokens."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, timedelta

import structlog
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from pdmuxd.controlplane.services import ControlPlane
from pdmuxd.engine.core.errors import StoreError

PERIOD_S = 3600.0

log = structlog.get_logger("pdmuxd.daemon")


async def forget_old(control_plane: ControlPlane, audit_retention_days: int) -> None:
    """Delete in small transactions, so that no change waits for long; 0 days: the audit is kept for good."""
    try:
        gone = 0
        if audit_retention_days:
            before = control_plane.store.clock() - timedelta(days=audit_retention_days)
            while deleted := await asyncio.to_thread(control_plane.forget_audit, before):
                gone += deleted
        await asyncio.to_thread(control_plane.limits.forget_use)
    except StoreError as error:
        log.warning("old entries are not deleted", reason=str(error))
    else:
        if gone:
            log.info("old entries of the audit deleted", entries=gone, retention_days=audit_retention_days)


def start_forgetting(stack: AsyncExitStack, control_plane: ControlPlane, audit_retention_days: int) -> None:
    """Look every PERIOD_S, and soon after the start, until `stack` is left."""
    scheduler = AsyncIOScheduler(timezone=UTC)
    arguments = [control_plane, audit_retention_days]
    scheduler.add_job(
        forget_old, "interval", arguments, seconds=PERIOD_S, jitter=60, max_instances=1, coalesce=True
    )
    scheduler.add_job(forget_old, "date", arguments)
    scheduler.start()
    stack.callback(scheduler.shutdown, wait=False)
