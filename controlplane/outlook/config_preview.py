"""What new targets of many tenants would give together, as `slo_preview` says it of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pdmuxd.controlplane.outlook.assumed_load import Assumed
from pdmuxd.controlplane.outlook.corrected import forecasts
from pdmuxd.controlplane.outlook.obstacles import Obstacle, obstacles_of
from pdmuxd.controlplane.outlook.queue_forecast import Forecast, is_kept
from pdmuxd.controlplane.outlook.slo_preview import (
    MOST_TENANTS,
    Preview,
    TenantOutlook,
    Verdict,
    split_outlook,
    tenant_outlook,
    usual_and_busy,
)
from pdmuxd.controlplane.outlook.what_if import Predictors, Questions, questions
from pdmuxd.controlplane.telemetry.recent import EndedRequest
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.engine.core.errors import EngineError
from pdmuxd.engine.core.slo import Slo

MOST_OBSTACLES = 20
"""So many are told; there may be more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """The targets of one tenant that hold, and those that are asked about."""

    current: Slo
    wanted: Slo


def preview_edits(edits: Mapping[str, Edit], telemetry: Telemetry, predictors: Predictors) -> Preview:
    """Ask what the edits would give to all tenants; the verdict is `unknown` if no engine can be asked."""
    try:
        asked = questions(telemetry, predictors)
    except EngineError as error:
        return Preview(verdict="unknown", text=f"no prediction: {error}", tenant="")
    now_s = telemetry.clock()
    requests, samples = telemetry.recent.requests(now_s), telemetry.recent.samples(now_s)
    known, traffic = telemetry.directory.tenants, Counter(one.tenant for one in requests)
    held = {name: known[name].slo for name in traffic if name in known}
    wanted = {name: edits[name].wanted if name in edits else slo for name, slo in held.items()}
    usual, busy = usual_and_busy(telemetry)
    before, after = forecasts(telemetry, asked, held, wanted)
    delays = telemetry.delays.all(now_s)
    obstacles = _obstacles(edits, asked, usual, after, requests)
    tenants = tuple(
        tenant_outlook(name, wanted[name], telemetry, before, after, delays, requests)
        for name, _ in traffic.most_common(MOST_TENANTS)
        if name in wanted
    )
    loads = ((usual, busy) if samples else (usual,)) if wanted else ()
    verdict, text = _verdict(tenants, obstacles, edits, before, held)
    return Preview(
        verdict=verdict,
        text=text,
        tenant="",
        policy=asked.policy.name,
        predictors=asked.predictors,
        requests=before.requests,
        checked=len(telemetry.forecasts.checked()),
        before=tuple(split_outlook(asked, _strictest_s(held), load) for load in loads),
        after=tuple(split_outlook(asked, _strictest_s(wanted), load) for load in loads),
        binding_before=before.binding,
        binding_after=after.binding,
        prefill_busy_before=before.prefill_busy_ratio if requests else None,
        prefill_busy_after=after.prefill_busy_ratio if requests else None,
        lowest_tbt_s=asked.lowest_tbt_s(usual),
        tenants=tenants,
        obstacles=obstacles,
    )


def _strictest_s(targets: Mapping[str, Slo]) -> float:
    return min(slo.tbt_s for slo in targets.values())


def _obstacles(
    edits: Mapping[str, Edit],
    asked: Questions,
    usual: Assumed,
    after: Forecast,
    requests: tuple[EndedRequest, ...],
) -> tuple[Obstacle, ...]:
    """What is infeasible. Tenants without traffic that have the same edit are asked about once."""
    own: dict[str, list[EndedRequest]] = {}
    for one in requests:
        own.setdefault(one.tenant, []).append(one)
    silent: dict[Edit, tuple[Obstacle, ...]] = {}
    found: list[Obstacle] = []
    for name, edit in edits.items():
        if name in own or edit not in silent:
            obstacles = obstacles_of(
                asked,
                edit.wanted,
                edit.current,
                usual,
                after.tenants.get(name),
                tuple(own.get(name, ())),
                name,
            )
            if name not in own:
                silent[edit] = obstacles
        else:
            obstacles = silent[edit]
        found += [
            replace(one, field=f"tenants.{name}.slo.{one.field}", text=f"{name}: {one.text}")
            for one in obstacles
        ]
        if len(found) >= MOST_OBSTACLES:
            break
    return tuple(found)


def _verdict(
    tenants: tuple[TenantOutlook, ...],
    obstacles: tuple[Obstacle, ...],
    edits: Mapping[str, Edit],
    before: Forecast,
    held: Mapping[str, Slo],
) -> tuple[Verdict, str]:
    if obstacles:
        return "infeasible", "; ".join(one.text for one in obstacles)
    missing = [one for one in tenants if one.is_kept is False]
    edited = [one.tenant for one in missing if one.tenant in edits]
    lost = [
        one.tenant
        for one in missing
        if one.tenant not in edits and is_kept(before.tenants.get(one.tenant), held[one.tenant])
    ]
    said = []
    if edited:
        said.append(f"predicted to miss what is promised: {', '.join(edited)}")
    if lost:
        said.append(f"it would cost others their targets: {', '.join(lost)}")
    if said:
        return "at_risk", "; ".join(said)
    if not tenants:
        return "feasible", "the targets are feasible; no tenant has sent anything in the last minutes"
    return "feasible", "every edited tenant that sends requests is predicted to keep its targets"
