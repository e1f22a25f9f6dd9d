"""What several measurements of one point say together."""

from __future__ import annotations

import pytest

from pdmuxd.engine.profiling.measurement import Point, Sample, is_dominated, settled, typical

POINT = Point(mode="prefill", prefill_sms=64, decode_sms=0, prefill=((256, 0),))
PAIR = Point(mode="colocated", prefill_sms=64, decode_sms=68, prefill=((256, 0),), decode=(10,))


def replicates(*seconds: float) -> list[Sample]:
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
    found = typical(replicates(*seconds))
    assert found.seconds == pytest.approx(together_s)
    assert found.confirmed is confirmed


def test_each_point_has_one_sample_when_settled() -> None:
    pairs = [Sample(point=PAIR, decode_s=1.0), Sample(point=PAIR, decode_s=1.0)]
    found = settled([*replicates(17.0), *pairs, *replicates(17.2)])
    assert [one.point for one in found] == [POINT, PAIR, PAIR]
    assert settled(found) == found, "what is settled stays"


def prefill(new: int, reused: int, *, sms: int, seconds: float, confirmed: bool = False) -> Sample:
    point = Point(mode="prefill", prefill_sms=sms, decode_sms=0, prefill=((new, reused),))
    return Sample(point=point, prefill_s=seconds, confirmed=confirmed)


@pytest.mark.parametrize(
    ("other", "outdoes"),
    [
        (prefill(512, 0, sms=64, seconds=0.018), True),
        (prefill(256, 2048, sms=48, seconds=0.018), True),
        (prefill(512, 0, sms=64, seconds=0.024), False),
        (prefill(512, 0, sms=80, seconds=0.018), False),
        (prefill(128, 4096, sms=64, seconds=0.018), False),
        (Sample(point=PAIR, decode_s=0.001), False),
    ],
    ids=["more-work", "fewer-sms", "as-long", "more-sms", "less-of-one", "another-mode"],
)
def test_a_point_is_dominated_when_more_work_on_no_more_sms_took_clearly_less(
    other: Sample, outdoes: bool
) -> None:
    assert is_dominated(prefill(256, 0, sms=64, seconds=0.025), other) is outdoes


def test_what_two_replicates_of_a_slow_host_confirmed_is_not_confirmed_when_more_work_took_less() -> None:
    slow = prefill(256, 0, sms=64, seconds=0.025, confirmed=True)
    quick = prefill(512, 0, sms=64, seconds=0.018, confirmed=True)
    assert [one.confirmed for one in settled([slow, quick])] == [False, True]
    assert [one.seconds for one in settled([slow, quick])] == [0.025, 0.018]
