"""What clients got is changed as one forecast differs from another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
from telemetry_feeds import ended_request

from pdmuxd.controlplane.outlook import corrected as correcting
from pdmuxd.controlplane.outlook.corrected import TIMES_OFF, corrected
from pdmuxd.controlplane.outlook.queue_forecast import Forecast, TenantForecast
from pdmuxd.controlplane.telemetry.delivery_delays import Got
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.engine.core.quantiles import nearest_rank
from pdmuxd.engine.core.slo import Slo
from pdmuxd.engine.link.durations import bucket_of

SLO = Slo(ttft_fixed_s=1.0, ttft_per_1k_new_tokens_s=1e-6, tbt_s=0.1, attainment_ratio=0.9)


def made(times_s: list[float], gaps: float) -> Forecast:
    one = TenantForecast(
        requests=len(times_s),
        ttft_p50_s=0.1,
        ttft_p99_s=1.0,
        ttft_attainment_ratio=sum(each <= 1.0 for each in times_s) / len(times_s),
        tbt_attainment_ratio=gaps,
        ttft_used=tuple(sorted(times_s)),
    )
    return Forecast(tenants={"chat": one}, prefill_s=1.0, time_s=2.0, requests=len(times_s), binding={})


def got(times_s: list[float], gaps_s: list[float]) -> dict[str, Got]:
    firsts = tuple((each, 0) for each in times_s)
    return {"chat": Got(firsts=firsts, gaps=tuple((bucket_of(each), 1) for each in gaps_s))}


def predicted(after: Forecast, as_is: Forecast, measured: dict[str, Got]) -> TenantForecast:
    return corrected(after, as_is, {"chat": SLO}, measured, []).tenants["chat"]


def test_a_queue_that_goes_away_takes_its_late_ones_with_it() -> None:
    """A quarter waits for 4 s, in the forecast three tenths; under the new targets nobody does."""
    measured = got([0.2] * 75 + [4.0] * 25, [0.05] * 10)
    as_is, after = made([0.1] * 70 + [3.0] * 30, 1.0), made([0.1] * 100, 1.0)
    assert predicted(after, as_is, measured).ttft_attainment_ratio == 1.0
    assert predicted(as_is, as_is, measured).ttft_attainment_ratio == 0.75
    worse = predicted(made([0.1] * 40 + [3.0] * 60, 1.0), as_is, measured)
    assert worse.ttft_attainment_ratio == pytest.approx(0.45)


def test_a_share_is_uncertain_where_many_times_are_near_the_target() -> None:
    near = [0.95, 1.05] * 50
    same = made([0.5] * 100, 1.0)
    assert predicted(same, same, got(near, [0.05])).ttft_between == (0.0, 1.0)
    far = predicted(same, same, got([0.5] * 90 + [2.0] * 10, [0.05]))
    assert far.ttft_between == pytest.approx((0.9, 0.9))
    assert 1.05 < 1.0 + TIMES_OFF < 2.0


def test_gaps_that_are_missed_are_fewer_by_the_factor_of_the_forecasts() -> None:
    measured = got([0.1] * 20, [0.05] * 8 + [0.2] * 2)
    half = predicted(made([0.1], 0.95), made([0.1], 0.9), measured)
    assert half.tbt_attainment_ratio == pytest.approx(0.9)
    worse = predicted(made([0.1], 0.2), made([0.1], 0.8), measured)
    assert worse.tbt_attainment_ratio == pytest.approx(0.2)
    planned = predicted(made([0.1], 1.0), made([0.1], 0.9), measured)
    assert (planned.tbt_attainment_ratio, planned.tbt_between) == (1.0, None)
    none = predicted(made([0.1], 0.0), made([0.1], 0.0), measured)
    assert none.tbt_attainment_ratio == pytest.approx(0.8)


def test_a_tenant_of_which_too_little_is_known_stays_as_it_was_forecast() -> None:
    after = made([0.1] * 10, 0.5)
    assert predicted(after, after, {}) == after.tenants["chat"]
    assert replace(after.tenants["chat"]).ttft_between is None


def test_the_usual_length_is_looked_for_once_for_each_tenant(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search sorts thousands of lengths, and holds Python's lock meanwhile."""
    searched: list[list[float]] = []

    def counted(values: Iterable[float], share: float) -> float | None:
        searched.append(list(values))
        return nearest_rank(searched[-1], share)

    monkeypatch.setattr(correcting, "nearest_rank", counted)
    names = ["chat"] * 50 + ["new"]
    waits = [SimpleNamespace(tenant=name, arrived_s=99.0) for name in names]
    telemetry = cast(Telemetry, SimpleNamespace(open=SimpleNamespace(without_a_token=lambda: waits)))
    lengths = (("chat", 100), ("chat", 300), ("chat", 200), ("idle", 7))
    requests = [ended_request(name, new_tokens=length, arrived_s=90.0) for name, length in lengths]
    found = correcting.waiting_requests(telemetry, requests, now_s=100.0)
    assert [(one.tenant, one.new_tokens) for one in found] == [("chat", 200)] * 50
    assert searched == [[100, 300, 200]]
