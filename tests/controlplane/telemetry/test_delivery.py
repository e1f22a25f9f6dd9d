"""By how much gaps are longer at clients, and what steps leave for it."""

from __future__ import annotations

import pytest
from observations import linear_context
from telemetry_feeds import request_record

from pdmuxd.controlplane.telemetry.delivery import DeliveryLateness, Way
from pdmuxd.controlplane.telemetry.judged import Delivered, judge
from pdmuxd.daemon.duties.delivery_check import DeliveryKeeper
from pdmuxd.engine.core.policies.base import MEASURED_DELIVERY_SHARE
from pdmuxd.engine.link.durations import bucket_of

GAPS = 100
MIN_GAPS = 2_000


def ended(made_s: float, written_s: float | None, *, is_direct: bool = False):
    """A request of 100 gaps that were made so long, and written so long."""
    record = request_record(
        tbt_gaps=GAPS, tbt_gaps_met=GAPS, tbt_max_s=made_s, tbt_counts=((bucket_of(made_s), GAPS),)
    )
    if written_s is None:
        return judge(record)
    counts = ((bucket_of(made_s), GAPS - 5), (bucket_of(written_s), 5))
    delivered = Delivered(ttft_s=0.1, gap_max_s=written_s, gap_counts=counts, is_direct=is_direct)
    return judge(record, delivered)


def fed(judged, *, now_s=0.0, times=MIN_GAPS // GAPS):
    lateness = DeliveryLateness()
    for _ in range(times):
        lateness.on_request(judged, now_s)
    return lateness


def test_what_delivery_adds_to_the_p99_of_gaps_is_measured():
    # Buckets are 8% wide.
    assert fed(ended(0.030, 0.040)).late_s(1.0) == pytest.approx(0.010, abs=0.08 * 0.040)


def test_nothing_is_told_of_few_gaps_or_of_answers_that_the_gateway_did_not_see():
    assert fed(ended(0.030, 0.040), times=MIN_GAPS // GAPS - 1).late_s(1.0) is None
    assert fed(ended(0.030, None)).late_s(1.0) is None


def test_what_is_older_than_the_window_is_forgotten():
    lateness = fed(ended(0.030, 0.040))
    assert lateness.late_s(59.0) is not None
    assert lateness.late_s(61.0) is None


def test_gaps_that_are_shorter_at_clients_are_not_late():
    assert fed(ended(0.040, 0.030)).late_s(1.0) == 0.0


def test_each_way_of_tokens_is_told_apart():
    lateness = DeliveryLateness()
    for _ in range(MIN_GAPS // GAPS):
        lateness.on_request(ended(0.030, 0.040), 0.0)
        lateness.on_request(ended(0.030, 0.034, is_direct=True), 0.0)
    by_way_s = lateness.late_by_way_s(1.0)
    assert by_way_s[Way.HTTP] == pytest.approx(0.010, abs=0.08 * 0.040)
    assert by_way_s[Way.DIRECT] == pytest.approx(0.004, abs=0.08 * 0.034)
    assert fed(ended(0.030, 0.040)).late_by_way_s(1.0).keys() == {Way.HTTP}


def test_a_stricter_promise_is_measured_by_its_own_quantile_once_gaps_are_enough():
    # Half a percent of the gaps is 70 ms late: of a p99 nothing, of a p99.9 all.
    record = request_record(
        tbt_gaps=1000, tbt_gaps_met=1000, tbt_max_s=0.03, tbt_counts=((bucket_of(0.03), 1000),)
    )
    counts = ((bucket_of(0.03), 995), (bucket_of(0.1), 5))
    judged = judge(record, Delivered(ttft_s=0.1, gap_max_s=0.1, gap_counts=counts))
    few, many = fed(judged, times=19), fed(judged, times=20)
    assert few.late_s(1.0, 0.999) == few.late_s(1.0) == pytest.approx(0.0, abs=0.001)
    assert many.late_s(1.0, 0.999) == pytest.approx(0.070, abs=0.08 * 0.1)


async def test_the_strictest_promise_is_measured_and_the_p99_at_least():
    asked = []

    class Lateness:
        def late_s(self, now_s, quantile):
            asked.append(quantile)

        def late_by_way_s(self, now_s):
            return {Way.DIRECT: 0.002}

    promised = iter([0.95, 0.999])
    keeper = DeliveryKeeper(
        Lateness(), clock=lambda: 0.0, publish=lambda event: None, attainment=lambda: next(promised)
    )
    await keeper.look()
    await keeper.look()
    assert asked == [0.99, 0.999]
    assert keeper.by_way_s == {Way.DIRECT: 0.002}


async def test_engines_are_told_of_a_delivery_that_changed_and_not_of_noise():
    late_s = [None, 0.005, 0.0055, 0.009, None, 0.002]
    looks = iter(late_s)
    told = []

    class Lateness:
        def late_s(self, now_s, quantile):
            return next(looks)

        def late_by_way_s(self, now_s):
            return {}

    keeper = DeliveryKeeper(Lateness(), clock=lambda: 0.0, publish=lambda event: told.append(event.planned_s))
    for _ in late_s:
        await keeper.look()
    assert told == [0.005, 0.009, 0.002]


def test_steps_leave_what_was_measured_and_a_quarter_of_the_target_at_most():
    context = linear_context()
    assert context.delivering(None) is context
    assert context.delivering(0.008).planned_tbt_s(0.050) == pytest.approx(0.042)
    assert context.delivering(0.060).planned_tbt_s(0.050) == pytest.approx(
        (1.0 - MEASURED_DELIVERY_SHARE) * 0.050
    )
    assert context.delivering(0.008).planned_tbt_s(None) == float("inf")
