"""The garbage collectors of the daemon and of its engine's processes, as metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from pdmuxd.daemon.metrics.counted import Metrics
from pdmuxd.daemon.metrics.definitions import counter_family, gauge_family
from pdmuxd.engine.link.garbage import GarbageHolder, GarbageReport, read_reports


def garbage_holder(
    is_idle: Callable[[], bool], link: Callable[[], str | None], metrics: Metrics
) -> GarbageHolder:
    """The holder of this process, which holds nothing yet; `link` is the running engine's address, if any."""
    holder = GarbageHolder("gateway", is_idle=is_idle)

    def reports() -> list[GarbageReport]:
        address = link()
        return [holder.report(), *(() if address is None else read_reports(address))]

    metrics.registry.register(GarbageCounts(reports))
    return holder


class GarbageCounts(Collector):
    """What the garbage collectors did, of the daemon and of the engine's processes."""

    def __init__(self, reports: Callable[[], Iterable[GarbageReport]]) -> None:
        self._reports = reports

    def collect(self) -> Iterator[Metric]:
        """prometheus_client's call."""
        counts = counter_family("pdmuxd_gc_collections_total")
        seconds = counter_family("pdmuxd_gc_seconds_total")
        found = counter_family("pdmuxd_gc_found_objects_total")
        longest = gauge_family("pdmuxd_gc_longest_seconds")
        forced = counter_family("pdmuxd_gc_forced_total")
        for report in self._reports():
            forced.add_metric((report.process,), report.forced)
            for number, generation in enumerate(report.generations):
                labels = (report.process, str(number))
                counts.add_metric(labels, generation.count)
                seconds.add_metric(labels, generation.total_s)
                found.add_metric(labels, generation.found)
                longest.add_metric(labels, generation.longest_s)
        yield from (counts, seconds, found, longest, forced)
