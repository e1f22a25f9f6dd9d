"""One predictor in the making: which points it asks for, when it believes them, when it is done."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from profiling import target_of

from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.core.roofline import RooflineModel
from pdmuxd.engine.emulator.profile import load_profile
from pdmuxd.engine.profiling import solo
from pdmuxd.engine.profiling.design_points import decode_points, prefill_points
from pdmuxd.engine.profiling.designs import DECODE, DECODE_KNOTS, PREFILL, PREFILL_KNOTS, Design
from pdmuxd.engine.profiling.measurement import Point, Sample
from pdmuxd.engine.profiling.predictor_campaign import MAX_REPLICATES, MAX_SOLO_SAMPLES, PredictorCampaign

SMS, OVERHEAD_S = 64, 0.03
HIDDEN = load_profile("h200-llama-8b")
TARGET = target_of(HIDDEN)
DEVICE = RooflineModel(model=HIDDEN.model, device=HIDDEN.device, overheads=HIDDEN.overheads)
PREFILLS, DECODES = prefill_points(TARGET, SMS, 1.0), decode_points(TARGET, SMS, 1.0)


def prefill_campaign(pool: list[Point] | None = None) -> PredictorCampaign:
    return PredictorCampaign(
        PREFILL,
        SMS,
        target=TARGET,
        pool=list(PREFILLS if pool is None else pool),
        design=Design(knots=PREFILL_KNOTS),
        chance=random.Random(1),
    )


def took(point: Point, seconds: float) -> Sample:
    if point.mode == "prefill":
        return Sample(point=point, prefill_s=seconds)
    return Sample(point=point, decode_s=seconds)


def law(point: Point) -> float:
    return DEVICE.prefill_s(point.prefill_shape, SMS)


def measure(campaign: PredictorCampaign, count: int, law: Callable[[Point], float]) -> None:
    for _ in range(count):
        point = campaign.next(OVERHEAD_S)
        assert campaign.add(took(point, law(point)), shortest_s=0.001)


def test_a_pool_is_refused_when_no_fit_could_come_of_it() -> None:
    with pytest.raises(
        ProfileError, match=rf"prefill on 64 SMs: .* allows 3 points; at least {solo.MIN_SAMPLES}"
    ):
        prefill_campaign(PREFILLS[:3])


def test_no_point_is_asked_for_twice_and_each_leaves_the_pool() -> None:
    campaign = prefill_campaign()
    found = [campaign.next(OVERHEAD_S) for _ in range(20)]
    assert len(set(found)) == 20
    assert len(campaign.pool) == len(PREFILLS) - 20
    assert not set(found) & set(campaign.pool)


def test_the_first_points_lie_far_apart() -> None:
    campaign = prefill_campaign()
    sizes = [campaign.next(OVERHEAD_S).prefill_shape for _ in range(6)]
    assert max(s.new_tokens for s in sizes) > 20 * min(s.new_tokens for s in sizes)
    assert max(s.reused_tokens for s in sizes) >= 8192


def test_a_predictor_without_samples_comes_before_one_that_has_a_fit() -> None:
    empty, begun, fitted = prefill_campaign(), prefill_campaign(), prefill_campaign()
    measure(begun, 3, law)
    measure(fitted, fitted.least, law)
    fitted.judge()
    assert empty.need > begun.need > fitted.need
    assert empty.missing == empty.least
    assert begun.missing == begun.least - 3
    assert empty.left_s > begun.left_s > 0.0


def test_the_bend_of_touched_experts_is_measured_with_a_few_points() -> None:
    """From 8 to 64 requests the experts that a step reads grow from 52 of 128 to 126."""
    target = target_of(load_profile("h200-qwen3-30b-a3b"))
    captured, experts = target.hello.captured_decode_bs, target.model.experts

    def first(design: Design) -> PredictorCampaign:
        pool = decode_points(target, SMS, 1.0)
        chance = random.Random(1)
        found = PredictorCampaign(DECODE, SMS, target=target, pool=pool, design=design, chance=chance)
        asked.append([len(found.next(OVERHEAD_S).decode) for _ in range(12)])
        return found

    asked: list[list[int]] = []
    bent = first(Design(knots=DECODE_KNOTS, captured_bs=captured, experts=experts))
    table = first(Design(own_bs=captured, captured_bs=captured))
    in_bend = [sum(8 <= bs <= 72 for bs in sizes) for sizes in asked]
    assert in_bend[0] >= 5 > in_bend[1]
    assert (bent.is_starved, table.is_starved) == (True, False)
    for _ in range(bent.least - 12):
        bent.next(OVERHEAD_S)
    assert not bent.is_starved


def test_nothing_is_judged_before_there_are_samples_enough() -> None:
    campaign = prefill_campaign()
    measure(campaign, campaign.least - 1, law)
    assert campaign.judge() == []
    assert campaign.p90 == float("inf")
    measure(campaign, 1, law)
    campaign.judge()
    assert campaign.p90 < 0.01


def test_it_is_done_when_the_fit_is_good_and_goes_on_when_it_is_not() -> None:
    good, bad = prefill_campaign(), prefill_campaign()
    scatter = random.Random(2)
    measure(good, good.least, law)
    measure(bad, bad.least, lambda point: law(point) * scatter.uniform(0.6, 1.6))
    good.judge()
    bad.judge()
    assert (good.is_done, good.is_open) == (True, False)
    assert (bad.is_done, bad.is_open) == (False, True)


def test_it_ends_some_time_when_no_fit_is_good() -> None:
    campaign = prefill_campaign()
    scatter = random.Random(2)
    measure(campaign, MAX_SOLO_SAMPLES, lambda point: law(point) * scatter.uniform(0.5, 2.0))
    campaign.judge()
    assert campaign.is_done


def test_a_point_that_no_fit_explains_is_named_once() -> None:
    campaign = prefill_campaign()
    odd = PREFILLS[40]
    campaign.take(odd)
    campaign.add(took(odd, 3.0 * law(odd)), shortest_s=0.001)
    measure(campaign, campaign.least + 6, law)
    assert campaign.judge() == [odd]
    assert not campaign.is_done
    assert campaign.judge() == []


def test_a_short_point_is_settled_when_a_second_measurement_agrees() -> None:
    campaign, point = prefill_campaign(), PREFILLS[0]
    assert not campaign.add(took(point, 0.020), shortest_s=0.010)
    assert not campaign.samples
    assert campaign.add(took(point, 0.0202), shortest_s=0.010)
    assert campaign.samples[point].seconds == pytest.approx(0.0201)
    assert campaign.replicates_of(point) == 2


def test_a_short_point_that_never_agrees_is_settled_in_the_end() -> None:
    campaign, point = prefill_campaign(), PREFILLS[0]
    said = [
        campaign.add(took(point, 0.018 * 1.38**number), shortest_s=0.05)
        for number in range(MAX_REPLICATES, 0, -1)
    ]
    assert said == [False] * (MAX_REPLICATES - 1) + [True]


def test_a_long_point_and_a_decode_step_are_settled_at_once() -> None:
    campaign = prefill_campaign()
    assert campaign.add(took(PREFILLS[0], 0.5), shortest_s=0.010)
    decode = PredictorCampaign(
        DECODE, SMS, target=TARGET, pool=list(DECODES), design=Design(), chance=random.Random(1)
    )
    assert decode.add(took(DECODES[0], 0.010), shortest_s=0.010)
