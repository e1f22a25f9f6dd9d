"""The last answers of the read routes that screens ask for while they are in front."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from pdmuxd.tui.client.rest import Refusal
from pdmuxd.tui.client.wire import (
    AttainmentOut,
    DecisionsOut,
    DriftOut,
    EffectsOut,
    GuardOut,
    LogOut,
    PartitionsOut,
    RequestsOut,
    SloOut,
    TenantOut,
    WhatIfOut,
)

T = TypeVar("T")


@dataclass(slots=True)
class Answers:
    """None before the first answer. A refusal takes the place of an answer; it says why."""

    tenants: tuple[TenantOut, ...] | Refusal | None = None
    attainment: AttainmentOut | Refusal | None = None
    partitions: PartitionsOut | Refusal | None = None
    guard: GuardOut | Refusal | None = None
    drift: DriftOut | Refusal | None = None
    log: LogOut | Refusal | None = None
    decisions: DecisionsOut | Refusal | None = None
    """Decisions of the tenant that the log is filtered by."""
    what_if: WhatIfOut | Refusal | None = None
    """The answer to the slider's target."""
    missed: dict[str, RequestsOut | Refusal] = field(default_factory=dict)
    """Missed requests by tenant; one tenant at a time is open."""
    effects: dict[str, EffectsOut | Refusal] = field(default_factory=dict)
    """What the last change did, by tenant."""
    slo_history: dict[str, tuple[SloOut, ...] | Refusal] = field(default_factory=dict)


def known(answer: T | Refusal | None) -> T | None:
    """The answer; None if it is a refusal or has not come."""
    return None if isinstance(answer, Refusal) else answer


def why_unknown(answer: object) -> str | None:
    """Why there is nothing to show, in a sentence; None if there is."""
    if answer is None:
        return "asking the daemon ..."
    if isinstance(answer, Refusal):
        if answer.is_missing_route:
            return "this daemon does not serve it"
        return answer.detail
    return None
