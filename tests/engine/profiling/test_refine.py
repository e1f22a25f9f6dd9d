"""What serving teaches: the guard at once and back slowly, predictors within bounds."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import msgspec
import pytest
from engines import engine, request, run_until_idle
from hypothesis import given
from hypothesis import strategies as st
from profiling import decode_record, greeting_of, measured_profile

from pdmuxd.engine.core.guard import MAX_RATIO, GuardCell
from pdmuxd.engine.core.latency import FusedCoefficients, PrefillCoefficients, SoloRunModel
from pdmuxd.engine.core.types import DecodeShape, PrefillShape
from pdmuxd.engine.link.messages import IterationRecord
from pdmuxd.engine.link.predictors import Correction, Predictors, SoloRun, latency_model
from pdmuxd.engine.profiling.corrections import BOUNDS, CORRECT_AFTER
from pdmuxd.engine.profiling.refine import LOWER_AFTER, LOWER_EVERY_S, Refiner

PREDICTORS = measured_profile().predictors(7)
LAYERS = 32
HELLO = greeting_of()
BATCH = DecodeShape(bs=32, reused_tokens=32_000)
PREFILL = PrefillShape.of([(9000, 0)])
CELL: GuardCell = (36, 2, 0, 6, 2)
DEFAULT = PREDICTORS.guard_default_ratio


def model_of(predictors: Predictors) -> SoloRunModel:
    hello = HELLO
    assert hello.roofline is not None
    return latency_model(predictors, hello.roofline)


MODEL = model_of(PREDICTORS)


def refiner_of(predictors: Predictors = PREDICTORS) -> Refiner:
    return Refiner(predictors, MODEL, layers=LAYERS, now_s=0.0)


def step(ratio: float, *, colocated: bool = True) -> IterationRecord:
    """A decode step on 36 SMs that took `ratio` times what is predicted alone."""
    alone_s = MODEL.decode_s(BATCH, 36)
    return decode_record(BATCH, PREFILL if colocated else None, alone_s=alone_s, ratio=ratio)


def test_nothing_is_imported_when_quantiles_are_taken_while_serving() -> None:
    taken = """
import sys
from pdmuxd.engine.profiling.refine import QUANTILE, np
before = set(sys.modules)
np.quantile([1.0, 2.0], QUANTILE), np.percentile(np.array([1.0, 2.0]), 10.0), np.median([1.0, 2.0])
print(*sorted(set(sys.modules) - before))
"""
    done = subprocess.run([sys.executable, "-c", taken], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_a_cell_is_raised_at_once_with_its_evidence_when_a_step_exceeds_its_bound() -> None:
    refiner = refiner_of()
    refiner.observe(step(1.05), 0.0)
    assert refiner.changes(0.0) == ()
    refiner.observe(step(1.3), 0.0)
    refiner.observe(step(1.4), 0.0)
    refiner.observe(step(1.2), 0.0)
    (change,) = refiner.changes(0.0)
    assert (change.kind, change.cell, change.before) == ("raised", CELL, DEFAULT)
    assert change.after == pytest.approx(1.4)
    assert "predicted alone" in change.evidence
    assert refiner.changes(0.0) == ()


def test_a_bound_comes_down_slowly_towards_a_high_quantile_when_steps_stay_below_it() -> None:
    refiner = refiner_of()
    refiner.observe(step(2.0), 0.0)
    (raised,) = refiner.changes(0.0)
    bounds = [raised.after]
    for _ in range(LOWER_AFTER - 1):
        refiner.observe(step(1.1), 1.0)
    assert lowered(refiner, LOWER_EVERY_S) == [], "too few steps"
    for tick in range(1, 40):
        refiner.observe(step(1.1), 1.0)
        bounds += lowered(refiner, tick * LOWER_EVERY_S)
        assert lowered(refiner, tick * LOWER_EVERY_S + 1.0) == [], "not twice within a minute"
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[1] > 1.7, "slowly"
    assert 1.1 < bounds[-1] < 1.15


def lowered(refiner: Refiner, now_s: float) -> list[float]:
    return [change.after for change in refiner.changes(now_s) if change.kind == "lowered"]


@given(seen=st.lists(st.floats(0.5, 6.0), max_size=40))
def test_the_stored_bound_covers_every_step_when_none_is_lowered(seen: list[float]) -> None:
    refiner = refiner_of()
    bound = DEFAULT
    for ratio in seen:
        refiner.observe(step(ratio), 0.0)
        for change in refiner.changes(0.0):
            if change.kind == "raised":
                assert change.before == pytest.approx(bound)
                bound = change.after
        assert 1.0 <= bound <= MAX_RATIO
        assert bound >= min(ratio, MAX_RATIO) - 1e-9


def drift_until_bound(ratio: float) -> list[float]:
    """Ratios of the corrections while the device stays `ratio` times slower than the profile."""
    predictors, refiner = PREDICTORS, refiner_of()
    corrections, now_s = [1.0], 0.0
    for _ in range(20):
        now_s += 5.0
        for _ in range(CORRECT_AFTER):
            refiner.observe(step(ratio, colocated=False), now_s)
        for change in refiner.changes(now_s):
            assert (change.kind, change.predictor, change.sms) == ("corrected", "decode", 36)
            assert change.before == pytest.approx(corrections[-1])
            corrections.append(change.after)
            predictors = msgspec.structs.replace(
                predictors, corrections=(Correction(sms=36, decode_ratio=change.after),)
            )
            refiner.adopt(predictors, model_of(predictors), now_s)
    assert (refiner.at_bound != ()) == (not BOUNDS[0] <= ratio <= BOUNDS[1])
    return corrections


def test_a_predictor_follows_in_small_steps_when_the_device_drifts() -> None:
    corrections = drift_until_bound(1.2)
    assert corrections[-1] == pytest.approx(1.2, abs=0.04)
    steps = [after / before for before, after in pairwise(corrections)]
    assert max(steps) <= 1.05 + 1e-9


@pytest.mark.parametrize(("ratio", "bound"), [(1.6, BOUNDS[1]), (0.5, BOUNDS[0])])
def test_a_correction_stops_at_its_bound_and_says_so_when_the_drift_goes_beyond(
    ratio: float, bound: float
) -> None:
    assert drift_until_bound(ratio)[-1] == bound


def test_a_predictor_stays_when_steps_are_slow_beside_a_prefill_only() -> None:
    refiner = refiner_of()
    for number in range(3 * CORRECT_AFTER):
        refiner.observe(step(1.0 if number % 3 else 1.3), 0.0)
    assert [change.kind for change in refiner.changes(0.0)] == ["raised"]


def test_a_predictor_is_raised_when_even_the_fastest_step_beside_a_prefill_is_slow() -> None:
    refiner = refiner_of()
    for _ in range(CORRECT_AFTER):
        refiner.observe(step(1.2), 0.0)
    changes = {change.kind: change for change in refiner.changes(0.0)}
    assert changes["corrected"].after == pytest.approx(1.05)


FUSED = FusedCoefficients(
    prefill=PrefillCoefficients(
        per_new_squared_s=1e-9, per_new_times_reused_s=0.0, per_new_s=1e-5, fixed_s=0.01
    ),
    per_reused_s=1e-8,
)
WITH_FUSED = msgspec.structs.replace(PREDICTORS, solo_run=(SoloRun(sms=132, fused=FUSED),))
CHUNK = PrefillShape.of([(512, 0)])


def fused_step(ratio: float, *, chunk: PrefillShape = CHUNK, late_s: float = 0.0) -> IterationRecord:
    """A fused step on all SMs that took `ratio` times what the profile says, after a launch that was late."""
    return msgspec.structs.replace(
        step(1.0),
        mode="fused",
        prefill_sms=132,
        decode_sms=132,
        prefill_new_tokens=chunk.new_tokens,
        prefill_sum_new_squared=chunk.sum_new_squared,
        measured_decode_s=None,
        measured_step_s=FUSED.predict_s(chunk, BATCH) * ratio + late_s,
        host_late_s=late_s,
    )


@pytest.mark.parametrize(("ratio", "settles_at"), [(1.2, 1.2), (0.9, 0.9), (1.6, BOUNDS[1])])
def test_the_fused_predictor_follows_within_its_bounds_when_fused_steps_drift(
    ratio: float, settles_at: float
) -> None:
    predictors, now_s = WITH_FUSED, 0.0
    refiner = Refiner(predictors, model_of(predictors), layers=LAYERS, now_s=0.0)
    for _ in range(12):
        now_s += 5.0
        for _ in range(CORRECT_AFTER):
            refiner.observe(fused_step(ratio, late_s=0.01), now_s)
        for change in refiner.changes(now_s):
            assert (change.kind, change.predictor, change.sms) == ("corrected", "fused", 132)
            assert change.after / change.before <= 1.05 + 1e-9
            predictors = msgspec.structs.replace(
                predictors, corrections=(Correction(sms=132, fused_ratio=change.after),)
            )
            refiner.adopt(predictors, model_of(predictors), now_s)
    expected_s = FUSED.predict_s(CHUNK, BATCH) * settles_at
    assert model_of(predictors).fused_s(CHUNK, BATCH, 132) == pytest.approx(expected_s, rel=0.04)
    assert refiner.at_bound == (("fused on 132 SMs",) if ratio > BOUNDS[1] else ())


def test_nothing_is_learned_of_fused_batches_when_a_step_has_no_prompt_tokens() -> None:
    refiner = Refiner(WITH_FUSED, model_of(WITH_FUSED), layers=LAYERS, now_s=0.0)
    for _ in range(CORRECT_AFTER):
        refiner.observe(msgspec.structs.replace(fused_step(2.0), prefill_new_tokens=0), 0.0)
    assert refiner.changes(0.0) == ()


def test_the_fused_predictor_is_corrected_when_the_emulated_device_reports_other_times() -> None:
    emulated = engine("chunked:64", step_records=True)
    emulated.submit(request("a", 64 * CORRECT_AFTER, 3), 0.0)
    run_until_idle(emulated)
    refiner = Refiner(WITH_FUSED, model_of(WITH_FUSED), layers=LAYERS, now_s=0.0)
    records = emulated.drain_records()
    for record in records:
        refiner.observe(record, 0.0)
    (change,) = refiner.changes(0.0)
    assert (change.predictor, change.sms) == ("fused", 132)


def test_nothing_is_learned_when_the_profile_is_frozen() -> None:
    refiner = refiner_of(msgspec.structs.replace(PREDICTORS, guard_frozen=True))
    for _ in range(CORRECT_AFTER):
        refiner.observe(step(1.9), 0.0)
    assert refiner.changes(0.0) == ()


def test_a_cell_is_raised_again_when_an_operator_has_reset_it() -> None:
    refiner = refiner_of()
    refiner.observe(step(1.5), 0.0)
    (change,) = refiner.changes(0.0)
    stored = msgspec.structs.replace(PREDICTORS, guard_cells=(*PREDICTORS.guard_cells, (CELL, change.after)))
    refiner.adopt(stored, model_of(stored), 1.0)
    refiner.adopt(PREDICTORS, model_of(PREDICTORS), 2.0)
    refiner.observe(step(1.3), 3.0)
    (again,) = refiner.changes(3.0)
    assert (again.before, again.after) == (DEFAULT, pytest.approx(1.3))
