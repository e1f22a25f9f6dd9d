"""Forecasts set right by what clients got: the queue of a forecast tells what changes, not how things are.

A forecast of what is differs from what is measured, and the next one of the same traffic differs as much. So
what is predicted is what clients got in the last minutes, judged by the targets asked about, and the
difference between two forecasts: under those targets, and under the ones that hold, both judged alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pdmuxd.controlplane.outlook.queue_forecast import P99, Forecast, Recent, TenantForecast, forecast
from pdmuxd.controlplane.outlook.what_if import Questions
from pdmuxd.controlplane.telemetry.delivery_delays import Got
from pdmuxd.controlplane.telemetry.recent import P50, WINDOW_S, EndedRequest
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.engine.core.quantiles import nearest_rank
from pdmuxd.engine.core.slo import Slo


def forecasts(
    telemetry: Telemetry, asked: Questions, held: Mapping[str, Slo], wanted: Mapping[str, Slo]
) -> tuple[Forecast, Forecast]:
    """What the last minutes' requests get under the targets that hold, and would get under those wanted; both
    set right by what clients got."""
    now_s = telemetry.clock()
    requests, samples = telemetry.recent.requests(now_s), telemetry.recent.samples(now_s)
    waiting = waiting_requests(telemetry, requests, now_s)
    recent = Recent.of((*requests, *waiting), samples)
    delays, got = telemetry.delays.all(now_s), telemetry.delays.got(now_s, telemetry.effects.changed_s)
    before, after = (forecast(recent, targets, asked, delays) for targets in (held, wanted))
    as_is = forecast(recent, held, asked, delays, judged_by=wanted)
    return corrected(before, before, held, got, waiting), corrected(after, as_is, wanted, got, waiting)


def waiting_requests(
    telemetry: Telemetry, requests: Sequence[EndedRequest], now_s: float
) -> list[EndedRequest]:
    """Requests without a first token yet, as long as their tenant's usually are: most of an overload."""
    lengths: dict[str, list[int]] = {}
    for one in requests:
        lengths.setdefault(one.tenant, []).append(one.new_tokens)
    return [
        EndedRequest(
            tenant=one.tenant,
            arrived_s=one.arrived_s,
            ended_s=now_s,
            new_tokens=int(nearest_rank(lengths[one.tenant], P50) or 1),
            reused_tokens=0,
            output_tokens=0,
            ttft_s=None,
            ttft_met=False,
            gaps=0,
            gaps_met=0,
        )
        for one in telemetry.open.without_a_token()
        if one.tenant in lengths and one.arrived_s >= now_s - WINDOW_S
    ]


def corrected(
    made: Forecast,
    as_is: Forecast,
    targets: Mapping[str, Slo],
    got: Mapping[str, Got],
    waiting: list[EndedRequest],
) -> Forecast:
    """`made` under `targets`, `as_is` under those that hold, judged by `targets`. Tenants of which too little
    was delivered stay as they were forecast."""
    waited: dict[str, list[tuple[float, int]]] = {}
    for one in waiting:
        waited.setdefault(one.tenant, []).append((one.ended_s - one.arrived_s, one.new_tokens))
    found = {
        name: _corrected(one, as_is.tenants[name], targets[name], got[name], waited.get(name, []))
        if name in got and name in as_is.tenants
        else one
        for name, one in made.tenants.items()
    }
    return replace(made, tenants=found)


def _corrected(
    made: TenantForecast, as_is: TenantForecast, slo: Slo, got: Got, waited: list[tuple[float, int]]
) -> TenantForecast:
    return replace(
        made,
        ttft_p50_s=_time(got.ttft_at(P50), made.ttft_p50_s, as_is.ttft_p50_s),
        ttft_p99_s=_time(got.ttft_at(P99), made.ttft_p99_s, as_is.ttft_p99_s),
        ttft_attainment_ratio=_share(
            got.ttft_share(slo, waited), made.ttft_attainment_ratio, as_is.ttft_attainment_ratio
        ),
        tbt_attainment_ratio=_share(
            got.gap_share(slo), made.tbt_attainment_ratio, as_is.tbt_attainment_ratio
        ),
    )


def _share(got: float | None, made: float | None, as_is: float | None) -> float | None:
    if got is None or made is None or as_is is None:
        return made
    return min(1.0, max(0.0, got + made - as_is))


def _time(got_s: float, made_s: float | None, as_is_s: float | None) -> float | None:
    return made_s if made_s is None or as_is_s is None else max(0.0, got_s + made_s - as_is_s)
