"""Whose key a request has, and what becomes of an address that keeps sending wrong ones."""

from __future__ import annotations

import asyncio
import time

import structlog

from pdmuxd.controlplane.services.directory import DirectorySnapshot
from pdmuxd.controlplane.tenants.records import Identity
from pdmuxd.daemon.gateway.asgi import Scope
from pdmuxd.daemon.gateway.call import Call
from pdmuxd.daemon.gateway.identity import identify
from pdmuxd.daemon.httpd.peers import THROTTLED_DELAY_S, AuthFailures, peer_of
from pdmuxd.engine.core.errors import RequestError

_MAX_FAILURES = 30
"""Wrong keys of one address in a minute; further ones are slowed down."""
_RETRY_AFTER_S = 60

log = structlog.get_logger("pdmuxd.access")


class Authenticator:
    """Finds the tenant and the key of each request."""

    def __init__(self, directory: DirectorySnapshot, failures: AuthFailures | None) -> None:
        self.directory = directory
        self._failures = failures or AuthFailures(_MAX_FAILURES, time.monotonic)

    async def identify(self, call: Call, scope: Scope) -> Identity:
        """Whose key the request has. Whoever keeps sending wrong keys waits for the answer.

        Raises: RequestError 401, 403, or 429 instead of 401.
        """
        try:
            return identify(scope, self.directory)
        except RequestError as error:
            if error.status != 401:
                raise
            peer = peer_of(scope.get("client"))
            failure = self._failures.count(peer)
            call.is_logged = failure.is_first
            if failure.is_first:
                log.warning("wrong or missing API key", peer=peer, unlogged=failure.unlogged)
            if not failure.is_throttled:
                raise
            await asyncio.sleep(THROTTLED_DELAY_S)
            raise RequestError(
                "too many wrong keys came from your address; try again in a minute",
                status=429,
                code="too_many_auth_failures",
                retry_after_s=_RETRY_AFTER_S,
            ) from None
