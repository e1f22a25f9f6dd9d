"""Forecasts set right by what clients got: the queue of a forecast tells what changes, not how things are.

A forecast of what is differs from what is measured, and the next one of the same traffic differs as much. So
what is predicted is what clients got in the last minutes, judged by the targets asked about, and changed as
one forecast differs from another: under those targets, and under the ones that hold, both judged alike. Of
first tokens each rank is changed by itself, so that a queue which goes away takes the late ones with it; of
gaps, those that are missed are fewer, or those in time, by the factor of the two forecasts
(docs/decisions/0073).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pdmuxd.controlplane.outlook.queue_forecast import P99, Forecast, Recent, TenantForecast, forecast
from pdmuxd.controlplane.outlook.what_if import Questions
from pdmuxd.controlplane.telemetry.delivery_delays import RANKS, Got
from pdmuxd.controlplane.telemetry.recent import P50, WINDOW_S, EndedRequest
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.engine.core.quantiles import nearest_rank
from pdmuxd.engine.core.slo import Slo

MOST_REGIMES = 8
PLANNED_RATIO = 0.99
TIMES_OFF = 0.12
"""By how much times of the same traffic may differ from one minute to the next; see decision 0073."""


def forecasts(
    telemetry: Telemetry, asked: Questions, held: Mapping[str, Slo], wanted: Mapping[str, Slo]
) -> tuple[Forecast, Forecast]:
    """What the last minutes' requests get under the targets that hold, and would get under those wanted; both
    set right by what clients got, if need be under targets that held before."""
    now_s = telemetry.clock()
    requests, samples = telemetry.recent.requests(now_s), telemetry.recent.samples(now_s)
    waiting = waiting_requests(telemetry, requests, now_s)
    recent = Recent.of((*requests, *waiting), samples)
    edited = [name for name, slo in wanted.items() if held.get(name) != slo]
    delays, (was, got) = telemetry.delays.all(now_s), base(telemetry, held, edited, now_s)
    before, after = (forecast(recent, targets, asked, delays) for targets in (held, wanted))
    as_is = forecast(recent, was, asked, delays, judged_by=wanted)
    is_held = before if was == held else forecast(recent, was, asked, delays, judged_by=held)
    return corrected(before, is_held, held, got, waiting), corrected(after, as_is, wanted, got, waiting)


def base(
    telemetry: Telemetry, held: Mapping[str, Slo], edited: Sequence[str], now_s: float
) -> tuple[Mapping[str, Slo], dict[str, Got]]:
    """What clients got of late, and under which targets: those that hold, unless too few requests of the
    tenants in question have ended under them. An edit is often made soon after another one."""
    regimes = telemetry.regimes.last(now_s)
    of_each = [(regime, telemetry.delays.got(now_s, regime)) for regime in regimes[:MOST_REGIMES]]
    chosen, got = next((each for each in of_each if all(name in each[1] for name in edited)), of_each[0])
    return {name: chosen.differs.get(name, slo) for name, slo in held.items()}, got


def waiting_requests(
    telemetry: Telemetry, requests: Sequence[EndedRequest], now_s: float
) -> list[EndedRequest]:
    """Requests without a first token yet, as long as their tenant's usually are: most of an overload."""
    lengths: dict[str, list[int]] = {}
    for one in requests:
        lengths.setdefault(one.tenant, []).append(one.new_tokens)
    open_now = telemetry.open.without_a_token()
    # Once for each tenant: the loop that sends tokens waits while 5,000 lengths are sorted.
    usual = {
        tenant: int(nearest_rank(lengths[tenant], P50) or 1)
        for tenant in {one.tenant for one in open_now} & lengths.keys()
    }
    return [
        EndedRequest(
            tenant=one.tenant,
            arrived_s=one.arrived_s,
            ended_s=now_s,
            new_tokens=usual[one.tenant],
            reused_tokens=0,
            output_tokens=0,
            ttft_s=None,
            ttft_met=False,
            gaps=0,
            gaps_met=0,
        )
        for one in open_now
        if one.tenant in usual and one.arrived_s >= now_s - WINDOW_S
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
    used = by_rank(used_of(got.firsts, waited, slo), made, as_is)

    def gaps(longer: float) -> float | None:
        seen = got.gap_share(slo.tbt_s / longer)
        return _gap_share(seen, made.tbt_attainment_ratio, as_is.tbt_attainment_ratio)

    # A target that the policy plans for is kept by its choice of a split, whatever the times are.
    is_planned = made.tbt_attainment_ratio is not None and made.tbt_attainment_ratio >= PLANNED_RATIO
    least, most = (None, None) if is_planned else (gaps(1.0 + TIMES_OFF), gaps(1.0 / (1.0 + TIMES_OFF)))
    return replace(
        made,
        ttft_p50_s=_time(got.ttft_at(P50), made.ttft_p50_s, as_is.ttft_p50_s),
        ttft_p99_s=_time(got.ttft_at(P99), made.ttft_p99_s, as_is.ttft_p99_s),
        ttft_attainment_ratio=in_time(used),
        ttft_between=(in_time(used, 1.0 + TIMES_OFF), in_time(used, 1.0 / (1.0 + TIMES_OFF))),
        tbt_attainment_ratio=gaps(1.0),
        tbt_between=None if least is None or most is None else (least, most),
    )


def used_of(
    firsts: Iterable[tuple[float, int]], waited: Iterable[tuple[float, int]], slo: Slo
) -> list[float]:
    """Times to first token by their targets, sorted, of seconds and new tokens; who still waits counts once
    it is late."""
    used = [first_s / slo.ttft_target_s(tokens) for first_s, tokens in firsts]
    waits = (waited_s / slo.ttft_target_s(tokens) for waited_s, tokens in waited)
    return sorted((*used, *(each for each in waits if each > 1.0)))


def by_rank(measured: Sequence[float], made: TenantForecast, as_is: TenantForecast) -> list[float]:
    """Times by their targets, sorted, as they would be: each rank changes as it does in the forecasts."""
    return [_at(measured, rank) * _at(made.ttft_used, rank) / _at(as_is.ttft_used, rank) for rank in RANKS]


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def in_time(used: Sequence[float], longer: float = 1.0) -> float:
    """The share of times by their targets that is at most 1, if all were so many times as long."""
    return sum(each * longer <= 1.0 for each in used) / len(used)


def _gap_share(got: float | None, made: float | None, as_is: float | None) -> float | None:
    if got is None or made is None or as_is is None:
        return made
    if made > as_is:
        return 1.0 - (1.0 - got) * (1.0 - made) / (1.0 - as_is)
    return got * made / as_is if as_is else got


def _time(got_s: float, made_s: float | None, as_is_s: float | None) -> float | None:
    return made_s if made_s is None or as_is_s is None else max(0.0, got_s + made_s - as_is_s)
