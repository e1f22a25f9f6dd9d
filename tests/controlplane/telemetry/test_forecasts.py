"""Forecasts have what delivery adds, and a band from how far the last ones were off."""

from __future__ import annotations

import pytest
from telemetry_feeds import (
    START_S,
    HandClock,
    directory,
    loaded_telemetry,
    predicting,
    request_record,
    telemetry,
)

from pdmuxd.controlplane.outlook.corrected import corrected
from pdmuxd.controlplane.outlook.queue_forecast import Forecast, TenantForecast
from pdmuxd.controlplane.outlook.slo_preview import Previews, held_shares
from pdmuxd.controlplane.telemetry.delivery_delays import NO_DELAY, DeliveryDelays, Got, delay_of
from pdmuxd.controlplane.telemetry.forecast_record import ENOUGH, HORIZON_S, ForecastRecord, least_requests
from pdmuxd.controlplane.telemetry.judged import Delivered, judge
from pdmuxd.controlplane.telemetry.recent import EndedRequest
from pdmuxd.engine.core.slo import Slo
from pdmuxd.engine.link.durations import bucket_of


def delivered(delays: DeliveryDelays, *, count: int, late_s: float, tenant: str = "chat") -> None:
    """Answers whose first token and whose gaps came so much later than they were made."""
    for _ in range(count):
        seen = Delivered(ttft_s=0.3 + late_s, gap_counts=((bucket_of(0.03 + late_s), 10),))
        delays.on_request(judge(request_record(tenant=tenant), seen), START_S)


def test_a_delay_is_what_came_between_making_and_delivery() -> None:
    delays = DeliveryDelays()
    assert delays.all(START_S) == {}
    delivered(delays, count=30, late_s=0.02)
    delivered(delays, count=5, late_s=5.0, tenant="docs")
    known = delays.all(START_S)
    assert set(known) == {"chat", ""}, "five tell too little of docs"
    chat = delay_of(known, "chat")
    assert chat.ttft_within_s(0.99) == pytest.approx(0.02)
    assert chat.gap_within_s(0.5) == pytest.approx(0.02, rel=0.1)
    assert (chat.gap_met(0.05), chat.gap_met(0.01)) == (1.0, 0.0)
    assert delay_of(known, "docs").ttft_within_s(0.99) == pytest.approx(5.0)
    assert delays.all(START_S + 301) == {}
    assert (NO_DELAY.gap_met(0.0), NO_DELAY.gap_met(-0.001), NO_DELAY.ttft_within_s(0.9)) == (1.0, 0.0, 0.0)


def test_a_host_that_delivers_late_is_in_the_forecast() -> None:
    known = loaded_telemetry(directory(chat=0.04, search=0.06))
    slo = known.directory.tenants["chat"].slo
    previews = Previews(known, predicting)
    before = previews.of("chat", slo, slo).tenants[0]
    assert before.after is not None
    assert before.after.tbt_attainment_ratio == 1.0
    delivered(known.delays, count=30, late_s=0.05)
    now_s = known.clock()
    for one in known.delays._seen:
        object.__setattr__(one, "at_s", now_s)
    found = previews.of("chat", slo, slo)
    own = found.tenants[0]
    assert own.after is not None
    assert own.after.tbt_attainment_ratio == 0.0
    assert (found.verdict, own.expected) == ("at_risk", "missed")
    assert (own.ttft_delivery_s, own.gap_delivery_s) == (pytest.approx(0.05), pytest.approx(0.05, rel=0.1))
    shares = held_shares(known, predicting)
    assert shares["chat"][1] == own.after.tbt_attainment_ratio


def test_a_band_is_as_wide_as_few_requests_and_past_errors_make_it() -> None:
    record = ForecastRecord()
    few, many = record.band("tbt", 1.0, 20), record.band("tbt", 1.0, 2000)
    assert few.low < 0.93 < 0.997 < many.low <= many.high == 1.0
    for number in range(ENOUGH):
        record.note({"chat": (None, 1.0)}, START_S + number)
        record.settle(lambda _: (0.5, 0.9), START_S + number + HORIZON_S)
    assert record.band("tbt", 1.0, 2000).low == pytest.approx(0.9)
    assert record.band("ttft", 1.0, 2000).low > 0.997, "TTFT was not predicted, so nothing is known of it"
    assert [one.error for one in record.checked()] == pytest.approx([-0.1] * ENOUGH)
    other = ForecastRecord()
    other.restore(record.checked())
    assert other.band("tbt", 1.0, 2000) == record.band("tbt", 1.0, 2000)


def test_a_forecast_is_dropped_when_something_is_changed_before_its_time() -> None:
    record = ForecastRecord()
    record.note({"chat": (1.0, 1.0)}, START_S)
    record.settle(lambda _: (0.5, 0.5), START_S + HORIZON_S - 1)
    record.forget_open()
    record.settle(lambda _: (0.5, 0.5), START_S + HORIZON_S)
    assert record.checked() == []


@pytest.mark.parametrize(("promised", "least"), [(0.5, 6), (0.95, 103), (0.99, 536), (0.999, 5407)])
def test_a_stricter_promise_needs_more_requests(promised: float, least: int) -> None:
    assert least_requests(promised) == least
    assert ForecastRecord().band("ttft", 1.0, least).low >= promised - 1e-9
    assert ForecastRecord().band("ttft", 1.0, least - 1).low < promised


def test_what_is_measured_is_what_attainment_tells() -> None:
    clock = HandClock()
    known = telemetry(clock, chat=0.04)
    for number in range(4):
        known.on_request(request_record(request_id=f"r{number}", ttft_s=9.0 if number else 0.1))
    assert known.lately("chat") == (0.25, 1.0)
    assert known.lately("nobody") == (None, None)


def test_what_clients_got_sets_the_forecast_right() -> None:
    """The forecast of what is says 80% and clients got 60%: of what is asked about 70% is told, not 90%."""
    slo = Slo(ttft_fixed_s=0.5, ttft_per_1k_new_tokens_s=0.001, tbt_s=0.04, attainment_ratio=0.9)
    got = Got(firsts=((0.2, 100),) * 60 + ((0.9, 100),) * 40, gaps=())

    def made(ttft: float) -> Forecast:
        in_time = round(100 * ttft)
        tenant = TenantForecast(
            requests=100,
            ttft_p50_s=0.4,
            ttft_p99_s=1.0,
            ttft_attainment_ratio=ttft,
            tbt_attainment_ratio=1.0,
            ttft_used=(0.5,) * in_time + (2.0,) * (100 - in_time),
        )
        return Forecast(tenants={"chat": tenant}, prefill_s=1.0, time_s=10.0, requests=100, binding={})

    def told(waiting: list[EndedRequest]) -> TenantForecast:
        return corrected(made(0.9), made(0.8), {"chat": slo}, {"chat": got}, waiting).tenants["chat"]

    assert told([]).ttft_attainment_ratio == pytest.approx(0.7)
    assert told([]).tbt_attainment_ratio == 1.0, "no gap was delivered, so the forecast is all that is known"
    assert told([]).ttft_p50_s == pytest.approx(0.2)
    late = EndedRequest(
        tenant="chat",
        arrived_s=0.0,
        ended_s=9.0,
        new_tokens=100,
        reused_tokens=0,
        output_tokens=0,
        ttft_s=None,
        ttft_met=False,
        gaps=0,
        gaps_met=0,
    )
    assert told([late] * 20).ttft_attainment_ratio == pytest.approx(0.53)
    alone = corrected(made(0.9), made(0.8), {"chat": slo}, {}, []).tenants["chat"]
    assert alone.ttft_attainment_ratio == 0.9
