"""The bodies of `/attainment`, and how they are made of what was counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from pydantic import BaseModel, Field

from pdmuxd.controlplane.events.messages import Verdict
from pdmuxd.controlplane.events.outcomes import Outcome, OutcomeWord
from pdmuxd.controlplane.milliseconds import to_ms
from pdmuxd.controlplane.telemetry.attainment import (
    FIVE_MINUTES_S,
    HOUR_S,
    WINDOWS_S,
    GoodCounts,
    TargetCounts,
    ViolationCounts,
    budget_left,
    verdict_of,
)
from pdmuxd.controlplane.telemetry.serializers import rounded
from pdmuxd.controlplane.telemetry.waiting import OpenCounts


class WindowOut(BaseModel):
    """One target over one window."""

    window_ms: float = Field(examples=[300000.0])
    requests: int = Field(description="With a first token, with a gap, or that were asked.")
    judged: int = Field(description="These requests; for TBT the gaps between their tokens.")
    missed: int = Field(description="Of what was judged.")
    attainment_ratio: float | None = Field(description="Null without traffic.")
    engine_judged: int = Field(description="As the engine made them; the others are as clients saw them.")
    engine_missed: int
    budget_left_ratio: float = Field(
        description="Of this window's error budget; negative if overdrawn, 1 without traffic."
    )
    burn: float | None = Field(
        description="How many times too fast the error budget is used; null without requests."
    )


class AvailabilityOut(BaseModel):
    """Whether requests were served, over one window."""

    window_ms: float = Field(examples=[300000.0])
    asked: int = Field(
        description="Requests that are over, but for those that clients gave up or that were not valid."
    )
    unserved: int = Field(description="Of these: refused (429, 503), expired, lost or failed.")
    limited: int = Field(description="Of these, refused by limits of the tenant or of its key.")
    availability_ratio: float | None = Field(description="Null without traffic.")
    budget_left_ratio: float = Field(description="As of `ttft` and `tbt`.")
    burn: float | None = Field(description="As of `ttft` and `tbt`.")


class GoodOut(BaseModel):
    """Requests of the last hour with TTFT, 99% of their gaps and their whole answer in time."""

    ended: int = Field(
        description="Requests that ended in the last hour, of this run of the daemon.", examples=[812]
    )
    delivered: int = Field(description="Of these, good as clients saw them.")
    by_steps: int = Field(description="Good as the engine made their tokens.")
    forgiven: int = Field(description="Good as clients saw them, with one late gap of each forgiven.")


class TenantAttainmentOut(BaseModel):
    """One tenant."""

    tenant: str = Field(examples=["chat"])
    target_ratio: float = Field(description="The attainment that its SLO asks for.")
    budget_left_ratio: float = Field(
        description="Of the last hour's error budget, of the target that has least; negative if overdrawn."
    )
    ttft: list[WindowOut]
    tbt: list[WindowOut]
    e2e: list[WindowOut] = Field(description="Of whole answers, where they have a target.")
    availability: list[AvailabilityOut]
    good: GoodOut
    outcomes: dict[OutcomeWord, int] = Field(
        description="How requests ended since the daemon started; what did not happen is left out.",
        examples=[{"finished": 812, "limited": 43}],
    )
    requests: int = Field(description="Ended in the engine since the daemon started.")
    refused: int = Field(description="Answered with 429 or 503 since the daemon started.")
    in_flight: int
    waiting: int = Field(description="In flight without a first token, at the gateway and in the engine.")
    late_now: int = Field(
        description="Of these, past their TTFT target. They count as missed in every window of `ttft`."
    )
    oldest_wait_ms: float = Field(description="How long the oldest of `waiting` has waited; 0 without any.")
    verdict: Verdict = Field(
        description="Over the last five minutes, late ones of now included: whether all targets are met."
    )


class TotalsOut(BaseModel):
    """All tenants together, whatever this page shows of them."""

    tenants: int = Field(description="That exist.", examples=[10000])
    active: int = Field(description="With something in flight, or with traffic in the last hour.")
    met: int = Field(description="Tenants whose verdict this is; the others had no traffic in five minutes.")
    missed: int
    in_flight: int
    waiting: int
    late_now: int
    oldest_wait_ms: float
    requests: int = Field(description="Ended in the engine since the daemon started.")
    refused: int = Field(description="Answered with 429 or 503 since the daemon started.")


class AttainmentOut(BaseModel):
    """A page of the tenants, by name. `Link` leads to the next."""

    windows_ms: list[float] = Field(examples=[[60000.0, 300000.0, 3600000.0]])
    totals: TotalsOut | None = Field(description="Null for an API key, which may know of its own tenant.")
    tenants: list[TenantAttainmentOut]


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantCounts:
    """What was counted of one tenant, at one instant."""

    name: str
    target_ratio: float
    windows: Sequence[tuple[float, TargetCounts]]
    good: GoodCounts
    outcomes: Mapping[Outcome, int]
    requests: int
    refused: int
    in_flight: int
    waiting: OpenCounts


def encoded(totals: TotalsOut | None, read: Sequence[TenantCounts]) -> bytes:
    """The body; each tenant by itself, since a long step of one thread holds all others."""
    windows_ms = ",".join(str(to_ms(window_s)) for window_s in WINDOWS_S)
    said = "null" if totals is None else totals.model_dump_json()
    tenants = ",".join(_out(each).model_dump_json() for each in read)
    return (f'{{"windows_ms":[{windows_ms}],"totals":{said},"tenants":[{tenants}]}}').encode()


def _out(read: TenantCounts) -> TenantAttainmentOut:
    target_ratio, windows = read.target_ratio, dict(read.windows)
    return TenantAttainmentOut(
        tenant=read.name,
        target_ratio=target_ratio,
        budget_left_ratio=budget_left(windows[HOUR_S], target_ratio),
        ttft=[_window(counts.ttft, window_s, target_ratio) for window_s, counts in read.windows],
        tbt=[_window(counts.tbt, window_s, target_ratio) for window_s, counts in read.windows],
        e2e=[_window(counts.e2e, window_s, target_ratio) for window_s, counts in read.windows],
        availability=[_served(counts.availability, s, target_ratio) for s, counts in read.windows],
        good=GoodOut(**asdict(read.good)),
        outcomes={each.value: count for each, count in read.outcomes.items()},
        requests=read.requests,
        refused=read.refused,
        in_flight=read.in_flight,
        waiting=read.waiting.waiting,
        late_now=read.waiting.late,
        oldest_wait_ms=to_ms(round(read.waiting.oldest_wait_s, 3)),
        verdict=verdict_of(windows[FIVE_MINUTES_S], target_ratio),
    )


def _served(counts: ViolationCounts, window_s: float, target_ratio: float) -> AvailabilityOut:
    return AvailabilityOut(
        window_ms=to_ms(window_s),
        asked=counts.judged,
        unserved=counts.missed,
        limited=counts.limited,
        availability_ratio=rounded(counts.attainment_ratio),
        budget_left_ratio=round(1.0 - (counts.burn(target_ratio) or 0.0), 6),
        burn=rounded(counts.burn(target_ratio)),
    )


def _window(violations: ViolationCounts, window_s: float, target_ratio: float) -> WindowOut:
    return WindowOut(
        window_ms=to_ms(window_s),
        requests=violations.requests,
        judged=violations.judged,
        missed=violations.missed,
        engine_judged=violations.engine_judged,
        engine_missed=violations.engine_missed,
        budget_left_ratio=round(1.0 - (violations.burn(target_ratio) or 0.0), 6),
        attainment_ratio=rounded(violations.attainment_ratio),
        burn=rounded(violations.burn(target_ratio)),
    )
