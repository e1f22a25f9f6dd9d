"""Deletes what is older than it has to be kept: entries of the audit, and the use of tokens."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial

import structlog

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.daemon.process.clock import ClockWatch
from pdmuxd.daemon.process.duty import Duty
from pdmuxd.engine.core.errors import StoreError

PERIOD_S = 3600.0

log = structlog.get_logger("pdmuxd.daemon")


async def forget_old(control_plane: ControlPlane, audit_retention_days: int, clock: ClockWatch) -> None:
    """Delete in small transactions, so that no change waits for long; 0 days: the audit is kept for good.

    Nothing is deleted while the wall clock may be wrong by days: it would be gone when that is corrected.
    """
    if not clock.is_trusted:
        return
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


def duties(control_plane: ControlPlane, audit_retention_days: int, clock: ClockWatch) -> tuple[Duty, ...]:
    """Look every PERIOD_S, and soon after the start."""
    forget = partial(forget_old, control_plane, audit_retention_days, clock)
    return (
        Duty(name="forgetting at the start", work=forget),
        Duty(name="forgetting", work=forget, period_s=PERIOD_S, by_wall_clock=True),
    )
