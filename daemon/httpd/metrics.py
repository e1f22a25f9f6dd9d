"""What the listeners count, read at each scrape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pdmuxd.daemon.httpd.connections import Connections
from pdmuxd.daemon.httpd.peers import AuthFailures


class HttpCollector(Collector):
    """`pdmuxd_http_*` of both listeners."""

    def __init__(self, listeners: Sequence[tuple[Connections, AuthFailures]]) -> None:
        self._listeners = listeners

    def collect(self) -> Iterator[Metric]:
        """prometheus_client's call."""
        label = ("listener",)
        count = GaugeMetricFamily("pdmuxd_http_connections", "Connections that are open.", labels=label)
        limit = GaugeMetricFamily(
            "pdmuxd_http_connections_limit", "Connections that may be open at once.", labels=label
        )
        closed = CounterMetricFamily(
            "pdmuxd_http_closed", "Connections refused or cut, by cause.", labels=("listener", "cause")
        )
        failures = CounterMetricFamily(
            "pdmuxd_http_auth_failures", "Requests with a wrong key or token, or none.", labels=label
        )
        for connections, auth_failures in self._listeners:
            count.add_metric((connections.listener,), connections.count)
            limit.add_metric((connections.listener,), connections.limits.max_connections)
            failures.add_metric((connections.listener,), auth_failures.total)
            for cause, number in sorted(connections.closed.items()):
                closed.add_metric((connections.listener, cause), number)
        yield from (count, limit, closed, failures)
