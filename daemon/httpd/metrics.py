"""What the listeners count, read at each scrape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from pdmuxd.daemon.httpd.connections import Connections
from pdmuxd.daemon.httpd.peers import AuthFailures
from pdmuxd.daemon.metrics.definitions import counter_family, gauge_family


class HttpCollector(Collector):
    """`pdmuxd_http_*` of both listeners."""

    def __init__(self, listeners: Sequence[tuple[Connections, AuthFailures]]) -> None:
        self._listeners = listeners

    def collect(self) -> Iterator[Metric]:
        """prometheus_client's call."""
        count, limit = gauge_family("pdmuxd_http_connections"), gauge_family("pdmuxd_http_connections_limit")
        closed = counter_family("pdmuxd_http_closed_total")
        failures = counter_family("pdmuxd_http_auth_failures_total")
        for connections, auth_failures in self._listeners:
            count.add_metric((connections.listener,), connections.count)
            limit.add_metric((connections.listener,), connections.limits.most)
            failures.add_metric((connections.listener,), auth_failures.total)
            for cause, number in sorted(connections.closed.items()):
                closed.add_metric((connections.listener, cause), number)
        yield from (count, limit, closed, failures)
