"""Finds whose key a request has, and what becomes of an address that keeps sending wrong ones."""

from __future__ import annotations

import time

import structlog

from pdmuxd.controlplane.services.directory import DirectorySnapshot
from pdmuxd.controlplane.tenants.records import Identity
from pdmuxd.daemon.gateway.call import Call
from pdmuxd.daemon.gateway.identity import identify
from pdmuxd.daemon.httpd.asgi import Scope
from pdmuxd.daemon.httpd.peers import AuthFailures
from pdmuxd.daemon.httpd.trusted_peers import TrustedPeers
from pdmuxd.engine.core.errors import RequestError

_MAX_FAILURES = 30
"""Wrong keys of one address in a minute; further ones are answered with 429."""
_RETRY_AFTER_S = 60

log = structlog.get_logger("pdmuxd.access")


class Authenticator:
    """Finds the tenant and the key of each request."""

    def __init__(
        self, directory: DirectorySnapshot, failures: AuthFailures | None, trusted: TrustedPeers | None = None
    ) -> None:
        self.directory = directory
        self._trusted = trusted or TrustedPeers()
        self._failures = failures or AuthFailures(_MAX_FAILURES, time.monotonic)

    def identify(self, call: Call, scope: Scope) -> Identity:
        """Find whose key the request has.

        Most of an address's further wrong keys are refused before they come here (`httpd/doors.py`).

        Raises: RequestError 401, 403, or 429 instead of 401.
        """
        try:
            return identify(scope, self.directory)
        except RequestError as error:
            if error.status != 401:
                raise
            peer = self._trusted.client_of(scope)
            failure = self._failures.count(peer)
            call.is_logged = failure.is_first
            if failure.is_first:
                log.warning("wrong or missing API key", peer=peer, unlogged=failure.unlogged)
            # A trusted router that names nobody carries all clients' requests: a 429 would look like its
            # node's failure, and take the node from the others.
            if not failure.is_throttled or self._trusted.has(peer):
                raise
            raise RequestError(
                "too many wrong keys came from your address; try again in a minute",
                status=429,
                code="too_many_auth_failures",
                retry_after_s=_RETRY_AFTER_S,
            ) from None
