"""What a replay of recent traffic is asked for and answers, between the daemon and its worker process."""

from __future__ import annotations

import msgspec

from pdmuxd.controlplane.node.traffic_replays import Outcome
from pdmuxd.daemon.traffic.ring import CapturedRequest
from pdmuxd.engine.emulator.profile import Profile
from pdmuxd.engine.link.messages import TenantSlo
from pdmuxd.engine.link.predictors import Predictors


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """One way to serve it."""

    label: str
    policy: str
    partitions: tuple[tuple[int, int], ...] | None
    tenants: tuple[TenantSlo, ...]
    rate_scale: float = 1.0
    tenant_scale: dict[str, float] = {}


class ReplayTask(msgspec.Struct, frozen=True, kw_only=True):
    """All that a worker needs."""

    requests: tuple[CapturedRequest, ...]
    profile: Profile
    predictors: Predictors | None
    variants: tuple[Variant, ...]


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag="progress"):
    """Requests that have ended, over all variants."""

    done: int
    total: int


class Finished(msgspec.Struct, frozen=True, kw_only=True, tag="finished"):
    """One outcome for each variant."""

    outcomes: tuple[Outcome, ...]


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """Why there is none."""

    reason: str


Said = Progress | Finished | Failed
"""A line of the worker's output."""
