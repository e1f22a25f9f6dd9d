"""What several measurements of one point say together."""

from __future__ import annotations

import pytest

from pdmuxd.engine.profiling.points import Point, Sample
from pdmuxd.engine.profiling.stretches import settled, typical

POINT = Point(mode="prefill", prefill_sms=64, decode_sms=0, prefill=((256, 0),))
PAIR = Point(mode="beside", prefill_sms=64, decode_sms=68, prefill=((256, 0),), decode=(10,))


def stretches(*seconds: float) -> list[Sample]:
    return [Sample(point=POINT, prefill_s=one) for one in seconds]


@pytest.mark.parametrize(
    ("seconds", "together_s", "confirmed"),
    [
        ((17.0,), 17.0, False),
        ((17.0, 18.0), 17.5, True),
        ((34.0, 17.0), 17.0, False),
        ((34.0, 17.0, 17.4), 17.2, True),
        ((34.0, 33.0, 17.0), 17.0, False),
        ((17.0, 17.5, 17.2, 31.0), 17.2, True),
    ],
)
def test_what_agrees_with_the_fastest_counts_when_others_were_stalled(
    seconds: tuple[float, ...], together_s: float, confirmed: bool
) -> None:
    found = typical(stretches(*seconds))
    assert found.seconds == pytest.approx(together_s)
    assert found.confirmed is confirmed


def test_each_point_has_one_sample_when_settled() -> None:
    pairs = [Sample(point=PAIR, decode_s=1.0), Sample(point=PAIR, decode_s=1.0)]
    found = settled([*stretches(17.0), *pairs, *stretches(17.2)])
    assert [one.point for one in found] == [POINT, PAIR, PAIR]
    assert settled(found) == found, "what is settled stays"
