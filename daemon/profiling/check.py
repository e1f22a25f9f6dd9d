"""How well a profile predicts shapes that it has not seen, on the engine that was just measured."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from pdmuxd.daemon.profiling.engine import MeasuringEngine
from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.link.predictors import contention_guard, latency_model
from pdmuxd.engine.profiling import design_points
from pdmuxd.engine.profiling.document import MeasuredProfile
from pdmuxd.engine.profiling.gate import trusted
from pdmuxd.engine.profiling.measurement import Point, Sample, Target, settled
from pdmuxd.engine.profiling.predictor_campaign import STALL_S

MAX_POINT_S = 0.6
SECOND_LOOKS = 2
"""At an unseen prefill that a slow host may have slowed: the campaign has as many at those it fits."""
SECOND_LOOKS_APART_S = 2.0
BUSY_TOKENS = 1536
BUSY_REQUESTS = 200
_SEED = 7


def unseen(target: Target, seen: set[Point], seed: int) -> Iterator[Point]:
    """Shapes at random: solo and fused ones of odd sizes, pairs from the guard's pool, in turn."""
    chance = random.Random(seed)  # noqa: S311 - which shapes, not a secret
    pairs = {
        split: [p for p in design_points.colocated_points(target, split, MAX_POINT_S) if p not in seen]
        for split in target.splits
    }
    turns = itertools.cycle(target.splits)
    total_sms, most = target.hello.total_sms, target.hello.max_decode_bs
    while True:
        sms = chance.choice(target.prefill_sizes)
        new = int(2 ** chance.uniform(6, 14))
        reused = chance.choice((0, 0, int(2 ** chance.uniform(8, 15))))
        yield Point(mode="prefill", prefill_sms=sms, decode_sms=0, prefill=((new, reused),))
        sms = chance.choice(target.decode_sizes)
        bs = chance.randint(1, min(128, most))
        contexts = tuple(int(2 ** chance.uniform(6, 13)) for _ in range(bs))
        yield Point(mode="decode", prefill_sms=0, decode_sms=sms, decode=contexts)
        # One over all sizes, and one of a busy step: see engine/profiling/serving_design.py.
        chunk = ((int(2 ** chance.uniform(4, 11)), chance.choice((0, int(2 ** chance.uniform(8, 13))))),)
        yield Point(mode="fused", prefill_sms=total_sms, decode_sms=total_sms, prefill=chunk, decode=contexts)
        bs, shares = chance.randint(min(32, most), min(BUSY_REQUESTS, most)), chance.choice((1, 1, 2, 4))
        new = chance.randint(384, BUSY_TOKENS) // shares
        contexts = tuple(int(2 ** chance.uniform(6, 11)) for _ in range(bs))
        busy = ((new, 0),) * shares
        yield Point(mode="fused", prefill_sms=total_sms, decode_sms=total_sms, prefill=busy, decode=contexts)
        # One pair of the splits in turn: a pair takes as long as the three others together.
        split = next(turns, None)
        if split is not None and pairs[split]:
            yield pairs[split].pop(chance.randrange(len(pairs[split])))


async def check(engine: MeasuringEngine, target: Target, seen: set[Point], budget_s: float) -> list[Sample]:
    """Measure unseen shapes until the time is over, then again the quick prefills that the host may have
    slowed."""
    end_s = time.monotonic() + budget_s
    samples: list[Sample] = []
    for number, point in enumerate(unseen(target, seen, seed=_SEED)):
        if time.monotonic() > end_s:
            break
        if point in seen or point.kv_tokens > target.kv_tokens:
            continue
        if point.mode != "colocated" and design_points.cost_s(target, point) > MAX_POINT_S:
            continue
        samples += await _measured(engine, point, number)
    quick = [
        one.point
        for one in samples
        if one.point.mode == "prefill" and one.seconds <= STALL_S and not one.is_device_time
    ]
    for _ in range(SECOND_LOOKS if quick else 0):
        await asyncio.sleep(SECOND_LOOKS_APART_S)
        for number, point in enumerate(quick):
            samples += await _measured(engine, point, number)
    return settled(samples)


async def _measured(engine: MeasuringEngine, point: Point, number: int) -> list[Sample]:
    """One sample, or none if the engine refuses it or no step fell beside the prefill."""
    answer = await engine.measure(point.to_measure(number, 1 if point.mode == "colocated" else 3))
    try:
        sample = Sample.of(point, answer)
    except ProfileError:
        return []
    return [sample] if sample.decode_s is not None or point.mode != "colocated" else []


def unseen_bounds(profile: MeasuredProfile, samples: Sequence[Sample]) -> list[float]:
    """The guard's bound over the slowdown of each pair; below 1 where the pair was slower."""
    predictors = profile.predictors(1)
    model, guard = latency_model(predictors, profile.roofline), contention_guard(predictors)
    found = []
    for sample in samples:
        point = sample.point
        if point.mode == "colocated" and sample.decode_high_s is not None:
            alone_s = model.decode_s(point.decode_shape, point.decode_sms)
            bound = guard.ratio(point.decode_sms, point.prefill_shape, point.decode_shape)
            found.append(bound / max(1.0, sample.decode_high_s / alone_s))
    return found


def unseen_errors(profile: MeasuredProfile, samples: Sequence[Sample]) -> Mapping[str, list[float]]:
    """Predicted over measured less 1 by kind of work, and by kind and SM count; pairs are the guard's."""
    model = latency_model(profile.predictors(1), profile.roofline)
    errors: dict[str, list[float]] = {}
    for sample in samples:
        point = sample.point
        if point.mode == "prefill":
            fit = model.prefill.get(point.prefill_sms)
            if fit is not None and fit.is_floor_apart and sample.is_device_time:
                predicted_s = fit.device_s(point.prefill_shape)
            else:
                predicted_s = model.prefill_s(point.prefill_shape, point.prefill_sms)
        elif point.mode == "decode":
            predicted_s = model.decode_s(point.decode_shape, point.decode_sms)
        elif point.mode == "fused":
            predicted_s = model.fused_s(point.prefill_shape, point.decode_shape, point.decode_sms)
            fused = model.fused.get(point.decode_sms)
            floor_s = fused.prefill.floor_s if fused is not None and fused.prefill.is_floor_apart else 0.0
            if sample.is_device_time and predicted_s <= floor_s:
                continue  # launching is what is predicted, which is no part of the sample
        else:
            continue
        for name in (point.mode, f"{point.mode} {sample.sms}"):
            errors.setdefault(name, []).append(predicted_s / sample.seconds - 1.0)
    return errors


def told_of_unseen(
    profile: MeasuredProfile, samples: Sequence[Sample], *, is_forced: bool = False
) -> Iterator[str]:
    """A line for each kind of work and one for the guard: how far off is what will serve.

    Where the roofline replaces a doubtful predictor, its error is told with the predictor's own beside it;
    `is_forced`: the operator insists on the predictor, so that nothing replaces it.
    """
    serving = profile if is_forced else trusted(profile)
    fitted = unseen_errors(profile, samples)
    for name, signed in sorted(unseen_errors(serving, samples).items()):
        if " " not in name:
            own = fitted.get(name, signed)  # none is left where a fit says that all of them wait for the host
            beside = f"; the roofline serves for doubtful fits, with which it would be {_error(own)}"
            yield (
                f"{name}: {len(signed)} batches that the profile has not seen; error {_error(signed)}"
                f"{beside if own != signed else ''}"
            )
    if bounds := unseen_bounds(serving, samples):
        slower = sum(one < 1.0 for one in bounds)
        yield (
            f"contention guard: {slower} of {len(bounds)} pairs that it has not seen took longer than its "
            f"bound; on average the bound lies {np.mean(bounds) - 1.0:.0%} above what they took"
        )


def _error(signed: Sequence[float]) -> str:
    p50, p90 = np.percentile(np.abs(signed), (50.0, 90.0))
    return f"p50 {p50:.1%}, p90 {p90:.1%}"
