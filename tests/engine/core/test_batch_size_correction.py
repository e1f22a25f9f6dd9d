"""What fused steps of a size typically take over their prediction."""

from __future__ import annotations

import random

import pytest

from pdmuxd.engine.core.batch_size_correction import HIGHEST, LOWEST, SIZES, BatchSizeCorrection


def test_nothing_is_known_of_a_size_before_it_was_measured() -> None:
    assert {BatchSizeCorrection().ratio(tokens) for tokens in (1, 32, 33, 2560, 2561, 100_000)} == {1.0}


def test_a_ratio_settles_at_what_is_typical_when_times_scatter() -> None:
    chance, sizes = random.Random(5), BatchSizeCorrection()
    for _ in range(500):
        seen = 1.32 * chance.lognormvariate(0.0, 0.03)
        sizes = sizes.after(240, predicted_s=0.02, measured_s=0.02 * seen)
    assert sizes.ratio(240) == pytest.approx(1.32, rel=0.03)


@pytest.mark.parametrize(
    ("tokens", "of_its_size", "of_another"), [(200, 224, 192), (330, 384, 320), (5, 1, 33)]
)
def test_a_ratio_is_of_the_steps_that_run_as_the_same_graph(
    tokens: int, of_its_size: int, of_another: int
) -> None:
    sizes = BatchSizeCorrection().after(tokens, predicted_s=1.0, measured_s=1.4)
    assert sizes.ratio(of_its_size) == pytest.approx(1.02)
    assert sizes.ratio(of_another) == 1.0


@pytest.mark.parametrize(("measured_s", "bound"), [(9.0, HIGHEST), (0.1, LOWEST)])
def test_a_ratio_is_bounded(measured_s: float, bound: float) -> None:
    sizes = BatchSizeCorrection()
    for _ in range(500):
        sizes = sizes.after(64, predicted_s=1.0, measured_s=measured_s)
    assert sizes.ratio(64) == pytest.approx(bound)


def test_a_step_beyond_the_last_size_teaches_nothing() -> None:
    sizes = BatchSizeCorrection()
    assert sizes.after(SIZES[-1] + 1, predicted_s=1.0, measured_s=1.4) is sizes


def test_the_other_sizes_keep_their_ratio_when_one_is_measured() -> None:
    known = BatchSizeCorrection(tuple(0.8 + i / 100 for i in range(len(SIZES))))
    found = known.after(192, predicted_s=1.0, measured_s=1.4)
    assert len(found.ratios) == len(SIZES)
    at = SIZES.index(192)
    assert [i for i in range(len(SIZES)) if found.ratios[i] != known.ratios[i]] == [at]
