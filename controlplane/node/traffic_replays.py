"""Replays of recent traffic: what an operator asks for, and what came of it. The daemon runs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import msgspec

from pdmuxd.controlplane.node.scheduling import Pairs
from pdmuxd.engine.core.errors import EngineError, NotFoundError
from pdmuxd.engine.core.slo import LateAction, PriorityClass, Slo

JobState = Literal["waiting", "running", "done", "failed", "cancelled"]
MOST_VARIANTS = 12


class TenantOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one tenant's requests got."""

    tenant: str
    requests: int
    finished: int
    ttft_p50_s: float | None
    ttft_p99_s: float | None
    ttft_attainment_ratio: float | None
    tbt_p99_s: float | None
    """The 99th percentile of the requests' p99 gaps."""
    tbt_attainment_ratio: float | None
    promised_ratio: float
    kept: bool
    needed_ttft_fixed_s: float | None
    """The fixed part of the TTFT target that the promised share of its requests met."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one variant came to."""

    label: str
    policy: str
    requests: int
    finished: int
    span_s: float
    goodput_per_s: float
    """Requests with their TTFT and the p99 of their gaps in time."""
    prefill_sm_ratio: float
    decode_sm_ratio: float
    tenants: tuple[TenantOutcome, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedSharing:
    """How one tenant takes part in what all share; what is None is as it is in force."""

    priority_class: PriorityClass | None = None
    weight: float | None = None
    late_action: LateAction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedVariant:
    """One way to serve the traffic; what is None is as it is in force."""

    label: str
    policy: str | None = None
    partitions: Pairs | None = None
    targets: Mapping[str, Slo]
    """By tenant; of others those in force."""
    rate_scale: float = 1.0
    tenant_scale: Mapping[str, float]
    """By tenant: how many times as many requests."""
    sharing: Mapping[str, WantedSharing] = field(default_factory=dict)
    """By tenant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One replay."""

    job_id: str
    state: JobState
    created_s: float
    """Unix time."""
    requests: int
    done: int
    total: int
    """Requests over all variants, of which `done` have ended."""
    reason: str | None = None
    outcomes: tuple[Outcome, ...] = ()
    """The first is as it is in force."""


class ReplayJobs(Protocol):
    """Runs them, one at a time. Called in the event loop."""

    async def begin(self, variants: tuple[WantedVariant, ...], *, minutes: float) -> Job:
        """Raises: EngineError if there is no engine or no traffic, ConflictError if too many wait."""

    def latest(self) -> tuple[Job, ...]:
        """The latest, newest first."""

    def get(self, job_id: str) -> Job:
        """Raises: NotFoundError."""

    def cancel(self, job_id: str) -> Job:
        """End it, if it has not ended. Raises: NotFoundError."""


class NoReplays:
    """Where no daemon runs."""

    async def begin(self, variants: tuple[WantedVariant, ...], *, minutes: float) -> Job:  # noqa: ARG002
        """Raises: EngineError."""
        raise EngineError("no daemon is running, so there is no traffic to replay")

    def latest(self) -> tuple[Job, ...]:
        return ()

    def get(self, job_id: str) -> Job:
        """Raises: NotFoundError."""
        raise NotFoundError(f"there is no replay {job_id[:40]!r}: no daemon is running")

    def cancel(self, job_id: str) -> Job:
        """Raises: NotFoundError."""
        return self.get(job_id)
