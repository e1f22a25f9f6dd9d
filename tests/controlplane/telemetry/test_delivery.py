"""By how much gaps are longer at clients, and what steps leave for it."""

from __future__ import annotations

import pytest
from observations import linear_context
from telemetry_feeds import request_record

from pdmuxd.controlplane.telemetry.delivery import MIN_GAPS, DeliveryLateness
from pdmuxd.controlplane.telemetry.judged import Delivered, judge
from pdmuxd.daemon.duties.delivery_check import DeliveryKeeper
from pdmuxd.engine.core.policies.base import MEASURED_DELIVERY_SHARE
from pdmuxd.engine.link.durations import bucket_of

GAPS = 100


def ended(made_s: float, written_s: float | None):
    """A request of 100 gaps that were made so long, and written so long."""
    record = request_record(
        tbt_gaps=GAPS, tbt_gaps_met=GAPS, tbt_max_s=made_s, tbt_counts=((bucket_of(made_s), GAPS),)
    )
    if written_s is None:
        return judge(record)
    counts = ((bucket_of(made_s), GAPS - 5), (bucket_of(written_s), 5))
    return judge(record, Delivered(ttft_s=0.1, gap_max_s=written_s, gap_counts=counts))


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


async def test_engines_are_told_of_a_delivery_that_changed_and_not_of_noise():
    late_s = [None, 0.005, 0.0055, 0.009, None, 0.002]
    looks = iter(late_s)
    told = []

    class Lateness:
        def late_s(self, now_s):
            return next(looks)

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
