"""What a tenant's new targets would give at the load of the last minutes, before they are promised."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pdmuxd.controlplane.outlook.assumed_load import (
    DEFAULT_CONTEXT_TOKENS,
    DEFAULT_NEW_TOKENS,
    Assumed,
    Wish,
    assume,
)
from pdmuxd.controlplane.outlook.corrected import base, corrected, forecasts, waiting_requests
from pdmuxd.controlplane.outlook.obstacles import Obstacle, obstacles_of
from pdmuxd.controlplane.outlook.queue_forecast import Forecast, Recent, TenantForecast, forecast, is_kept
from pdmuxd.controlplane.outlook.what_if import Predictors, Questions, in_words, questions, tokens_per_s
from pdmuxd.controlplane.outlook.whole_answers import e2e_share
from pdmuxd.controlplane.telemetry.delivery_delays import Delay, delay_of
from pdmuxd.controlplane.telemetry.forecast_record import Band, Shares
from pdmuxd.controlplane.telemetry.recent import P90, EndedRequest
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.engine.core.errors import EngineError, InfeasibleTargetError
from pdmuxd.engine.core.slo import Slo

Verdict = Literal["feasible", "at_risk", "infeasible", "unknown"]
Expected = Literal["kept", "at_risk", "missed"]

LONE = Assumed(
    decode_bs=1,
    decode_context_tokens=DEFAULT_CONTEXT_TOKENS,
    prefill_new_tokens=DEFAULT_NEW_TOKENS,
    prefill_reused_tokens=0,
    source="default",
)
"""About the least that an engine can be asked: a target that fails here fails always."""
MOST_TENANTS = 50
_REST_RATIO = 4.0
_TOO_FAST = "edits come too fast to predict more of each"
_NO_SAMPLES_YET = "nothing has run in the last minutes: a lone request is assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a tenant's clients got in the last five minutes, as `/attainment` tells it; None where there was
    nothing to judge."""

    ttft_attainment_ratio: float | None
    tbt_attainment_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantOutlook:
    """One tenant: measured, and predicted under the targets that hold and those that are asked about."""

    tenant: str
    slo: Slo
    """The one that is asked about."""
    measured: Measured | None
    before: TenantForecast | None
    after: TenantForecast | None
    ttft_band: Band | None = None
    """Where what is predicted of the targets asked about is likely to be measured."""
    tbt_band: Band | None = None
    ttft_delivery_s: float = 0.0
    """What delivery adds to first tokens, for the share that is promised; it is in `before` and `after`."""
    gap_delivery_s: float = 0.0
    """The same of gaps."""
    e2e_attainment_ratio: float | None = None
    """Of whole answers, under the targets asked about; None where they have none."""

    @property
    def is_kept(self) -> bool | None:
        """Whether its targets are predicted to be met in the share that is promised; None without traffic."""
        kept = is_kept(self.after, self.slo)
        if kept and self.e2e_attainment_ratio is not None:
            return self.e2e_attainment_ratio >= self.slo.attainment_ratio
        return kept

    @property
    def expected(self) -> Expected | None:
        """`kept` and `missed` if the whole band says so, else `at_risk`; None without traffic."""
        bands = [band for band in (self.ttft_band, self.tbt_band) if band is not None]
        if not bands:
            return None
        whole = self.e2e_attainment_ratio
        is_late = whole is not None and whole < self.slo.attainment_ratio
        if is_late or any(band.high < self.slo.attainment_ratio for band in bands):
            return "missed"
        return "kept" if all(band.low >= self.slo.attainment_ratio for band in bands) else "at_risk"


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitOutlook:
    """What the policy would do at one load."""

    load: Assumed
    tbt_s: float
    """The target of the tenant that is asked about."""
    text: str
    prefill_tokens_per_s: float | None
    meets: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The answer."""

    verdict: Verdict
    text: str
    tenant: str
    policy: str | None = None
    predictors: str | None = None
    requests: int = 0
    """Of the last minutes, that the prediction is made of."""
    checked: int = 0
    """Shares of past forecasts that were compared with what was measured, of which the bands are made."""
    before: tuple[SplitOutlook, ...] = ()
    """Under the target that holds, at the usual (p50) and at a busy (p90) load."""
    after: tuple[SplitOutlook, ...] = ()
    binding_before: Mapping[str, float] | None = None
    binding_after: Mapping[str, float] | None = None
    prefill_busy_before: float | None = None
    prefill_busy_after: float | None = None
    lowest_tbt_s: float | None = None
    tenants: tuple[TenantOutlook, ...] = ()
    """The one that is asked about first, then by their traffic."""
    obstacles: tuple[Obstacle, ...] = ()

    def require_feasible(self) -> None:
        """Raises: InfeasibleTargetError naming the target and the lowest that is feasible."""
        if self.obstacles:
            first = self.obstacles[0]
            said = "; ".join(one.text for one in self.obstacles)
            raise InfeasibleTargetError(
                first.field,
                f"{said} (policy {self.policy}, load of the last minutes); "
                "--force (REST: ?force=true) sets it all the same",
            )


class Previews:
    """Previews of one daemon's engine; those of edits take a fifth of one core at most, however many come."""

    def __init__(
        self,
        telemetry: Telemetry,
        predictors: Predictors,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._telemetry = telemetry
        self._predictors = predictors
        self._next_s = 0.0

    def of(self, tenant: str, slo: Slo, current: Slo, *, is_brief: bool = False) -> Preview:
        return preview(
            tenant,
            slo,
            current=current,
            telemetry=self._telemetry,
            predictors=self._predictors,
            is_brief=is_brief,
        )

    def of_edit(self, tenant: str, slo: Slo, current: Slo) -> Preview:
        """The same for an edit; when edits come fast, only whether the targets are feasible."""
        begun_s = self._clock()
        if begun_s < self._next_s:
            found = self.of(tenant, slo, current, is_brief=True)
            if not found.obstacles:
                return found
        found = self.of(tenant, slo, current)
        record = self._telemetry.forecasts
        record.forget_open()
        record.note(predicted_shares(found), self._telemetry.clock())
        ended_s = self._clock()
        self._next_s = ended_s + _REST_RATIO * (ended_s - begun_s)
        return found


def preview(
    tenant: str,
    slo: Slo,
    *,
    current: Slo,
    telemetry: Telemetry,
    predictors: Predictors,
    is_brief: bool = False,
) -> Preview:
    """Ask what `slo` would give in place of `current`; the verdict is `unknown` if no engine can be asked.

    `is_brief`: without a forecast of the tenants, which takes some 50 ms.
    """
    try:
        asked = questions(telemetry, predictors)
    except EngineError as error:
        return Preview(verdict="unknown", text=f"no prediction: {error}", tenant=tenant)
    now_s = telemetry.clock()
    requests, samples = telemetry.recent.requests(now_s), telemetry.recent.samples(now_s)
    known, active = telemetry.directory.tenants, {one.tenant for one in requests}
    held = {name: known[name].slo for name in active if name in known} | {tenant: current}
    wanted = held | {tenant: slo}
    usual, busy = usual_and_busy(telemetry)
    if is_brief:
        obstacles = obstacles_of(asked, slo, current, usual, None, requests, tenant)
        said = "; ".join(one.text for one in obstacles) or f"the targets are feasible; {_TOO_FAST}"
        return Preview(
            verdict="infeasible" if obstacles else "feasible",
            text=said,
            tenant=tenant,
            policy=asked.policy.name,
            predictors=asked.predictors,
            obstacles=obstacles,
        )
    before, after = forecasts(telemetry, asked, held, wanted)
    delays = telemetry.delays.all(now_s)
    loads = (usual, busy) if samples else (usual,)
    obstacles = obstacles_of(asked, slo, current, usual, after.tenants.get(tenant), requests, tenant)
    busiest = [name for name, _ in Counter(one.tenant for one in requests).most_common(MOST_TENANTS)]
    names = [tenant, *(name for name in busiest if name != tenant and name in wanted)]
    tenants = tuple(
        tenant_outlook(
            name, wanted[name], telemetry, before, after, delays, requests if name in active else ()
        )
        for name in names
    )
    verdict, text = _verdict(tenants, obstacles, before, held)
    return Preview(
        verdict=verdict,
        text=text if samples else f"{text}; {_NO_SAMPLES_YET}",
        tenant=tenant,
        policy=asked.policy.name,
        predictors=asked.predictors,
        requests=before.requests,
        checked=len(telemetry.forecasts.checked()),
        before=tuple(split_outlook(asked, current.tbt_s, load) for load in loads),
        after=tuple(split_outlook(asked, slo.tbt_s, load) for load in loads),
        binding_before=before.binding,
        binding_after=after.binding,
        prefill_busy_before=before.prefill_busy_ratio if requests else None,
        prefill_busy_after=after.prefill_busy_ratio if requests else None,
        lowest_tbt_s=asked.lowest_tbt_s(usual),
        tenants=tenants,
        obstacles=obstacles,
    )


def usual_and_busy(telemetry: Telemetry) -> tuple[Assumed, Assumed]:
    """The load of the last minutes at p50 and at p90; a lone request where nothing has run."""
    wish = Wish(tbt_s=1.0)
    usual, busy = assume(wish, telemetry), assume(wish, telemetry, P90)
    return (LONE, LONE) if usual.source == "default" else (usual, busy)


def split_outlook(asked: Questions, tbt_s: float, load: Assumed) -> SplitOutlook:
    """What the policy would do at one load under a TBT target."""
    answer = asked.ask(tbt_s, load)
    chosen = answer.chosen
    return SplitOutlook(
        load=load,
        tbt_s=tbt_s,
        text=in_words(
            asked.policy.name,
            answer,
            asked.policy.table.groups,
            tbt_s,
            asked.policy.context.planned_tbt_s(tbt_s),
        ),
        prefill_tokens_per_s=None if chosen is None else tokens_per_s(chosen, load.prefill_new_tokens),
        meets=answer.is_feasible,
    )


def tenant_outlook(
    tenant: str,
    slo: Slo,
    telemetry: Telemetry,
    before: Forecast,
    after: Forecast,
    delays: dict[str, Delay],
    requests: Sequence[EndedRequest],
) -> TenantOutlook:
    """One tenant, with what its clients got and the band of what is predicted; `requests` are those of the
    last minutes, none if it sent none."""
    ttft, tbt = telemetry.lately(tenant) if requests else (None, None)
    found, record = after.tenants.get(tenant), telemetry.forecasts
    delay = delay_of(delays, tenant)

    def band(target: str, share: float | None, between: tuple[float, float] | None) -> Band | None:
        if found is None or share is None:
            return None
        known = record.band(target, share, found.requests)
        low, high = between or (share, share)
        return Band(low=min(low, known.low), high=max(high, known.high))

    return TenantOutlook(
        tenant=tenant,
        slo=slo,
        measured=Measured(ttft_attainment_ratio=ttft, tbt_attainment_ratio=tbt) if requests else None,
        before=before.tenants.get(tenant),
        after=found,
        ttft_band=None if found is None else band("ttft", found.ttft_attainment_ratio, found.ttft_between),
        tbt_band=None if found is None else band("tbt", found.tbt_attainment_ratio, found.tbt_between),
        ttft_delivery_s=delay.ttft_within_s(slo.attainment_ratio),
        gap_delivery_s=delay.gap_within_s(slo.attainment_ratio),
        e2e_attainment_ratio=e2e_share(requests, tenant, slo),
    )


def held_shares(telemetry: Telemetry, predictors: Predictors) -> Shares:
    """What is predicted of each tenant with traffic under the targets that hold. Raises: EngineError."""
    asked, now_s = questions(telemetry, predictors), telemetry.clock()
    requests, samples = telemetry.recent.requests(now_s), telemetry.recent.samples(now_s)
    known = telemetry.directory.tenants
    held = {name: known[name].slo for name in {one.tenant for one in requests} if name in known}
    waiting = waiting_requests(telemetry, requests, now_s)
    made = forecast(Recent.of((*requests, *waiting), samples), held, asked, telemetry.delays.all(now_s))
    _, got = base(telemetry, held, (), now_s)
    found = corrected(made, made, held, got, waiting).tenants
    return {name: (one.ttft_attainment_ratio, one.tbt_attainment_ratio) for name, one in found.items()}


def predicted_shares(found: Preview) -> Shares:
    """What a preview says of each tenant."""
    return {
        one.tenant: (one.after.ttft_attainment_ratio, one.after.tbt_attainment_ratio)
        for one in found.tenants
        if one.after is not None
    }


def _verdict(
    tenants: tuple[TenantOutlook, ...],
    obstacles: tuple[Obstacle, ...],
    before: Forecast,
    held: Mapping[str, Slo],
) -> tuple[Verdict, str]:
    if obstacles:
        return "infeasible", "; ".join(one.text for one in obstacles)
    own, others = tenants[0], tenants[1:]
    lost = [
        one.tenant
        for one in others
        if one.is_kept is False and is_kept(before.tenants.get(one.tenant), held[one.tenant])
    ]
    said = []
    if own.is_kept is False:
        said.append(f"{own.tenant} is predicted to miss what is promised: {_shares(own)}")
    if lost:
        said.append(f"it would cost others their targets: {', '.join(lost)}")
    if said:
        return "at_risk", "; ".join(said)
    if own.is_kept and own.expected == "kept":
        return "feasible", f"{own.tenant} is predicted to keep its targets: {_shares(own)}"
    if own.is_kept:
        return "at_risk", f"{own.tenant} may miss what is promised, as forecasts were off: {_shares(own)}"
    return "feasible", f"the targets are feasible; {own.tenant} has sent nothing in the last minutes"


def _shares(own: TenantOutlook) -> str:
    after = own.after
    if after is None:
        return "nothing known"
    known = (
        ("TTFT", after.ttft_attainment_ratio, own.ttft_band),
        ("TBT", after.tbt_attainment_ratio, own.tbt_band),
        ("whole answers", own.e2e_attainment_ratio, None),
    )
    said = [
        f"{name} {share:.1%}{f' ({band.low:.1%} to {band.high:.1%})' if band else ''}"
        for name, share, band in known
        if share is not None
    ]
    return f"{', '.join(said)} in time, promised {own.slo.attainment_ratio:.4g}"
