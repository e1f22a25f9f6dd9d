"""The node's load as routers are told of it, from what the telemetry knows."""

from __future__ import annotations

from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.telemetry.waiting import summed
from pdmuxd.daemon.gateway.about import NodeLoad

LATEST_S = 1.0
"""A step that is older says nothing of now."""


def node_load(telemetry: Telemetry) -> NodeLoad:
    """The load of this moment; asked in the event loop."""
    now_s, status = telemetry.clock(), telemetry.status()
    serves = status.state in ("serving", "draining")
    return NodeLoad(
        hello=status.hello if serves else None,
        stats=status.stats if serves else None,
        waiting=summed(telemetry.open_counts(now_s).values()).waiting,
        ttft_headroom_ratio=round(1.0 - _ttft_used(telemetry, now_s), 4),
        tbt_headroom_ratio=round(1.0 - _tbt_used(telemetry, now_s), 4),
    )


def _ttft_used(telemetry: Telemetry, now_s: float) -> float:
    """The largest share of its TTFT target that a waiting request has used up."""
    tenants = telemetry.directory.tenants
    waiting = (
        (one, tenants[one.tenant]) for one in telemetry.open.without_a_token() if one.tenant in tenants
    )
    return max(
        ((now_s - one.arrived_s) / telemetry.open.target_s(one, tenant) for one, tenant in waiting),
        default=0.0,
    )


def _tbt_used(telemetry: Telemetry, now_s: float) -> float:
    """The share of the strictest target in flight that the latest step with decode took."""
    latest = telemetry.decisions.latest
    if latest is None or now_s - latest.at_s > LATEST_S or not latest.record.decode_bs:
        return 0.0
    tenants = telemetry.directory.tenants
    targets = [tenants[name].slo.tbt_s for name in telemetry.in_flight() if name in tenants]
    targets += telemetry.open.own_tbt_targets_s()
    return latest.measured_s / min(targets) if targets else 0.0
