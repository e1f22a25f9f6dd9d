"""Shapes that a profile has not seen: which they are, and what is said of them."""

from __future__ import annotations

import gzip
import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from profiling import target_of

from pdmuxd.daemon.profiling.check import told_of_unseen, unseen, unseen_bounds, unseen_errors
from pdmuxd.engine.emulator.profile import load_profile
from pdmuxd.engine.link.predictors import SoloRun
from pdmuxd.engine.profiling.document import MeasuredProfile, read_file
from pdmuxd.engine.profiling.measurement import Sample

TARGET = target_of(load_profile("h200-llama-8b"))
H100 = Path(__file__).parents[3] / "docs/measurements/h100"


@pytest.fixture(scope="module")
def profile() -> MeasuredProfile:
    return read_file(H100 / "llama-8b.profile.json.gz")


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    return msgspec.json.decode(
        gzip.decompress((H100 / "llama-8b.unseen.json.gz").read_bytes()), type=list[Sample]
    )


def test_each_kind_has_its_turn_and_pairs_take_no_more_than_one() -> None:
    points = list(itertools.islice(unseen(TARGET, set(), seed=7), 100))
    kinds = Counter(point.mode for point in points)
    assert kinds == {"prefill": 20, "decode": 20, "fused": 40, "colocated": 20}
    splits = {(p.prefill_sms, p.decode_sms) for p in points if p.mode == "colocated"}
    assert splits == set(TARGET.splits)


def test_busy_steps_are_among_the_fused_batches() -> None:
    fused = [p for p in itertools.islice(unseen(TARGET, set(), seed=7), 200) if p.mode == "fused"]
    busy = [p for p in fused if p.prefill_shape.new_tokens >= 300 and len(p.decode) >= 32]
    assert len(busy) >= len(fused) / 3


@pytest.mark.slow
def test_what_is_known_is_no_unseen_pair() -> None:
    first = list(itertools.islice(unseen(TARGET, set(), seed=7), 50))
    seen = {point for point in first if point.mode == "colocated"}
    again = itertools.islice(unseen(TARGET, seen, seed=7), 50)
    assert not seen & {point for point in again if point.mode == "colocated"}


def test_errors_of_an_h100_are_told_by_kind_and_by_sm_count(
    profile: MeasuredProfile, samples: list[Sample]
) -> None:
    errors = unseen_errors(profile, samples)
    assert {name for name in errors if " " not in name} == {"prefill", "decode", "fused"}
    assert len(errors["prefill 92"]) == 1
    assert float(np.percentile(np.abs(errors["prefill"]), 90.0)) == pytest.approx(0.052, abs=0.001)


def test_the_bound_of_each_unseen_pair_is_told(profile: MeasuredProfile, samples: list[Sample]) -> None:
    bounds = unseen_bounds(profile, samples)
    assert len(bounds) == sum(one.point.mode == "colocated" for one in samples)
    assert sum(one < 1.0 for one in bounds) == 2
    assert float(np.mean(bounds)) == pytest.approx(1.15, abs=0.01)


def test_the_error_of_what_will_serve_is_told_and_that_of_a_doubtful_fit_beside(
    profile: MeasuredProfile, samples: list[Sample]
) -> None:
    def told(of: MeasuredProfile, *, is_forced: bool = False) -> str:
        return line_of("decode", told_of_unseen(of, samples, is_forced=is_forced))

    slow = msgspec.structs.replace(
        profile,
        solo_run=tuple(
            msgspec.structs.replace(run, decode=run.decode and run.decode.scaled(3.0))
            for run in profile.solo_run
        ),
        fits=tuple(
            msgspec.structs.replace(fit, errors=replace(fit.errors, p90=2.0), roofline_p90=0.1)
            if fit.predictor == "decode"
            else fit
            for fit in profile.fits
        ),
    )
    alone = msgspec.structs.replace(
        slow, solo_run=tuple(msgspec.structs.replace(run, decode=None) for run in slow.solo_run)
    )
    serves, fits = error_of(alone, samples), error_of(slow, samples)
    assert serves < 0.3 < 1.5 < fits
    assert f"error p50 {serves:.1%}, p90" in told(slow)
    assert f"with which it would be p50 {fits:.1%}, p90" in told(slow)
    assert f"error p50 {fits:.1%}, p90" in told(slow, is_forced=True)
    assert "doubtful" not in told(slow, is_forced=True) + told(profile)


def test_what_serves_is_told_when_a_doubtful_fit_says_that_every_batch_waits_for_the_host(
    profile: MeasuredProfile, samples: list[Sample]
) -> None:
    def waiting(run: SoloRun) -> SoloRun:
        if run.fused is None:
            return run
        prefill = replace(run.fused.prefill, floor_s=9.0, is_floor_apart=True)
        return msgspec.structs.replace(run, fused=replace(run.fused, prefill=prefill))

    fits = tuple(
        msgspec.structs.replace(fit, errors=replace(fit.errors, p90=2.0), roofline_p90=0.1)
        if fit.predictor == "fused"
        else fit
        for fit in profile.fits
    )
    of = msgspec.structs.replace(profile, solo_run=tuple(map(waiting, profile.solo_run)), fits=fits)
    fused = [one for one in samples if one.point.mode == "fused" and one.is_device_time]
    assert fused
    assert "fused" not in unseen_errors(of, fused)
    assert f"fused: {len(fused)} batches" in line_of("fused", told_of_unseen(of, fused))


def error_of(profile: MeasuredProfile, samples: list[Sample]) -> float:
    return float(np.median(np.abs(unseen_errors(profile, samples)["decode"])))


def line_of(kind: str, lines: Iterable[str]) -> str:
    return next(line for line in lines if line.startswith(f"{kind}: "))
