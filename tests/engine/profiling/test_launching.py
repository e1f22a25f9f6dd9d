"""What launching takes, as a law beside the device's."""

from __future__ import annotations

import random

import pytest

from pdmuxd.engine.core.latency import PrefillCoefficients
from pdmuxd.engine.core.types import PrefillShape
from pdmuxd.engine.profiling.launching import MIN_LAUNCHES, LaunchCost, fit_launching, with_launching
from pdmuxd.engine.profiling.measurement import Point, Sample

LAYERS = 32


def samples(count: int, *, stalled: float = 0.0) -> list[Sample]:
    """0.6 ms a layer and 0.2 ms for each further request, some launches twice as long."""
    chance = random.Random(5)
    found = []
    for number in range(count):
        requests = 1 + number % 4
        launch_s = (0.0006 * LAYERS + 0.0002 * (requests - 1)) * chance.lognormvariate(0.0, 0.02)
        launch_s *= 2.0 if chance.random() < stalled else 1.0
        point = Point(mode="prefill", prefill_sms=64, decode_sms=0, prefill=((64, 0),) * requests)
        found.append(Sample(point=point, prefill_s=0.004, launch_s=(launch_s,)))
    return found


@pytest.mark.parametrize("stalled", [0.0, 0.15])
def test_the_typical_cost_is_found_when_some_launches_stall(stalled: float) -> None:
    found = fit_launching(samples(200, stalled=stalled), LAYERS)
    assert found is not None
    assert found.per_layer_s == pytest.approx(0.0006, rel=0.03)
    assert found.per_request_s == pytest.approx(0.0002, rel=0.35)
    assert found.launches == 200
    assert (found.high_ratio > 1.8) == (stalled > 0.0)


def test_nothing_is_said_when_launches_are_few_or_part_of_the_time() -> None:
    assert fit_launching(samples(MIN_LAUNCHES - 1), LAYERS) is None
    mixed = [Sample(point=one.point, prefill_s=0.02) for one in samples(50)]
    assert fit_launching(mixed, LAYERS) is None


def test_the_longer_of_device_and_launching_is_predicted_and_each_is_known() -> None:
    device = PrefillCoefficients(
        per_new_squared_s=0.0, per_new_times_reused_s=0.0, per_new_s=2e-5, fixed_s=0.004
    )
    cost = LaunchCost(per_layer_s=0.0006, per_request_s=0.001, high_ratio=1.4, launches=99)
    both = with_launching(device, cost, LAYERS)
    short, long = PrefillShape.of([(64, 0)] * 3), PrefillShape.of([(4096, 0)])
    assert both.device_s(short) == device.predict_s(short)
    assert both.predict_s(short) == pytest.approx(0.0192 + 0.002)
    assert both.predict_s(long) == device.predict_s(long)
    slower = both.scaled(1.1)
    assert slower.predict_s(short) == both.predict_s(short), "the host is no slower for it"
    assert slower.predict_s(long) == pytest.approx(1.1 * both.predict_s(long))
