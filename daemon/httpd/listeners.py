"""The two listeners as the settings make them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import structlog

from pdmuxd.controlplane.api.auth import PUBLIC_PATHS
from pdmuxd.daemon.httpd.admin_guard import AdminGuard
from pdmuxd.daemon.httpd.connections import Connections
from pdmuxd.daemon.httpd.doors import Door
from pdmuxd.daemon.httpd.limits import HttpLimits, connection_budget, raise_descriptor_limit
from pdmuxd.daemon.httpd.metrics import HttpCollector
from pdmuxd.daemon.httpd.peers import AuthFailures
from pdmuxd.daemon.httpd.trusted_peers import TrustedPeers
from pdmuxd.daemon.settings import Settings

_DATA_OPEN = frozenset({b"/health", b"/health_generate", b"/metrics"})
_ADMIN_OPEN = frozenset(path.encode() for path in PUBLIC_PATHS)
"""Paths that need no key."""
MANY = 64
"""Connections in a second whose objects are looked through within garbage.LONG_S: 2,400 took 60 to 180 ms
(two shared cores, 2026-11-25)."""

Knows = Callable[[str], bool]

log = structlog.get_logger("pdmuxd.http")


def _nobody(_secret: str) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """The connections of both planes, and who sent wrong keys to each."""

    data: Connections
    admin: Connections
    data_failures: AuthFailures
    admin_failures: AuthFailures
    _came: list[int] = field(default_factory=lambda: [0])
    """Connections when `many_came` was asked last."""

    @classmethod
    def of(cls, settings: Settings, *, knows_key: Knows = _nobody, knows_token: Knows = _nobody) -> Listeners:
        """Limits from the settings, and numbers of connections that the process can have open.

        `knows_key` says whether what a client of the data plane sends is good, `knows_token` of the admin's.
        """
        wanted, admin_wanted = settings.data.max_connections, settings.admin.max_connections
        descriptors = raise_descriptor_limit(data=wanted, admin=admin_wanted)
        budget = connection_budget(descriptors, data=wanted, admin=admin_wanted)
        if budget.data < wanted or budget.admin < admin_wanted:
            log.warning(
                "fewer connections than data.max_connections and admin.max_connections are possible",
                open_files_limit=descriptors,
                data=budget.data,
                admin=budget.admin,
            )
        most = settings.http.max_auth_failures
        data_failures, admin_failures = (AuthFailures(most, time.monotonic) for _ in range(2))
        trusted = TrustedPeers(settings.data.trusted_peers)
        return cls(
            data=Connections(
                "data",
                _limits(settings, budget.data, settings.data.max_connections_per_peer),
                door=Door(data_failures, knows_key, open_paths=_DATA_OPEN, is_trusted=trusted.has),
            ),
            admin=Connections(
                "admin",
                _limits(settings, budget.admin, budget.admin, budget.admin_waiting),
                style="problem",
                door=Door(admin_failures, knows_token, open_paths=_ADMIN_OPEN),
            ),
            data_failures=data_failures,
            admin_failures=admin_failures,
        )

    def many_came(self) -> bool:
        """Whether more than `MANY` connections came since this was asked last."""
        before, self._came[0] = self._came[0], self.data.came + self.admin.came
        return self._came[0] - before > MANY

    def use(self, settings: Settings) -> None:
        """The limits of `[http]` for connections that are yet to come; the numbers of connections stay."""
        for connections in (self.data, self.admin):
            limits = connections.limits
            peer = limits.max_connections_per_peer
            connections.use(_limits(settings, limits.max_connections, peer, limits.max_waiting))

    def collector(self) -> HttpCollector:
        return HttpCollector(((self.data, self.data_failures), (self.admin, self.admin_failures)))

    def guard(self, app: Callable[..., Any], settings: Settings) -> AdminGuard:
        """The admin plane's application, guarded."""
        admin = settings.admin
        return AdminGuard(
            app,
            allowed_hosts=[admin.host, *filter(None, map(str.strip, admin.allowed_hosts.split(",")))],
            max_body_bytes=admin.max_body_bytes,
            max_connections=self.admin.limits.max_connections,
            auth_failures=self.admin_failures,
        )


def _limits(settings: Settings, max_connections: int, per_peer: int, max_waiting: int = 0) -> HttpLimits:
    http = settings.http
    return HttpLimits(
        max_connections=max_connections,
        max_waiting=max_waiting,
        max_connections_per_peer=min(max_connections, per_peer),
        max_header_bytes=http.max_header_bytes,
        max_headers=http.max_headers,
        header_timeout_s=http.header_timeout_s,
        body_timeout_s=http.body_timeout_s,
        keep_alive_s=http.keep_alive_s,
        write_timeout_s=http.write_timeout_s,
    )
