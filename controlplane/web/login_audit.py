"""Logins in the audit: who, from where, and those that failed, of which one address fills no database."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable

from starlette.types import Scope

from pdmuxd.controlplane.database.callers import DAEMON, Caller, acting
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.engine.core.errors import StoreError

FAILURES_EVERY_S = 60.0
"""An address that tries on is in the audit once so often; the log and the metrics count every wrong token."""
MOST_FAILURES = 30
"""Of all addresses within that time: an attacker may have any number."""
_log = logging.getLogger("pdmuxd.audit")


class LoginAudit:
    """Used in the event loop; entries are written in threads. What cannot be written is logged."""

    def __init__(self, control_plane: ControlPlane, *, now_s: Callable[[], float]) -> None:
        self._control_plane = control_plane
        self._now_s = now_s
        self._failed_s: OrderedDict[str, float] = OrderedDict()

    async def done(self, action: str, caller: Caller, scope: Scope) -> None:
        """`login` or `logout`."""
        await asyncio.to_thread(self._write, action, caller, _source(scope))

    async def failed(self, scope: Scope) -> None:
        """A token that the daemon does not know, or that may not look."""
        source, now_s = _source(scope), self._now_s()
        while self._failed_s and now_s - next(iter(self._failed_s.values())) >= FAILURES_EVERY_S:
            self._failed_s.popitem(last=False)
        if source in self._failed_s or len(self._failed_s) >= MOST_FAILURES:
            return
        self._failed_s[source] = now_s
        await asyncio.to_thread(self._write, "login.failed", DAEMON, source)

    def _write(self, action: str, caller: Caller, source: str) -> None:
        try:
            with acting(caller, source=source):
                self._control_plane.record_login(action, subject=caller.name, tenant=caller.tenant)
        except StoreError as error:
            _log.warning("a login is not in the audit: %s from %s: %s", action, source, error)


def _source(scope: Scope) -> str:
    client = scope.get("client")
    return "unknown" if client is None else str(client[0])
