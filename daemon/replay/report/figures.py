"""Which figures a report has, and in what order."""

from __future__ import annotations

from collections.abc import Sequence

from pdmuxd.daemon.replay.report import latency, over_time
from pdmuxd.daemon.replay.run import PolicyReplay
from pdmuxd.daemon.report.plots import Figure
from pdmuxd.engine.core.slo import Slo


def all_figures(replays: Sequence[PolicyReplay], slo: Slo) -> list[Figure]:
    """What clients saw first, then what the engine did."""
    tenants = len(replays[0].metrics.by_tenant)
    return [
        latency.ttft_exceeding(replays, slo),
        latency.tbt_exceeding(replays, slo),
        latency.attainment(replays, by_tenant=False),
        *([latency.attainment(replays, by_tenant=True)] if tenants > 1 else []),
        latency.ttft_by_length(replays, slo),
        over_time.good_and_load(replays, slo),
        over_time.sm_split(replays),
        over_time.reasons(replays),
    ]
