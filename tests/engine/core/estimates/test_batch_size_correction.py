"""What fused steps of a size typically take over their prediction."""

from __future__ import annotations

import random

import pytest

from pdmuxd.engine.core.estimates.batch_size_correction import FORGET_S, SIZES, BatchSizeCorrection
from pdmuxd.engine.core.running_mean import HIGHEST, LOWEST


def learned(*typical: tuple[int, float], start: BatchSizeCorrection | None = None) -> BatchSizeCorrection:
    sizes = start or BatchSizeCorrection()
    for tokens, ratio in typical:
        for _ in range(300):
            sizes = sizes.after(tokens, predicted_s=1.0, measured_s=ratio)
    return sizes


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
    other = learned((of_another, 1.1))
    sizes = other.after(tokens, predicted_s=1.0, measured_s=1.4)
    assert (
        sizes.ratio(of_its_size) == sizes.ratio(tokens) > sizes.ratio(of_another) == other.ratio(of_another)
    )


def test_a_size_without_a_step_is_taken_as_the_slower_of_those_around_it() -> None:
    sizes = learned((192, 1.1), (448, 1.3), (1024, 1.2))
    asked = (32, 192, 224, 384, 448, 512, 960, 1024, 2560)
    found = tuple(round(sizes.ratio(tokens), 2) for tokens in asked)
    assert found == (1.1, 1.1, 1.3, 1.3, 1.3, 1.3, 1.3, 1.2, 1.2)
    # It follows them until a step of its own is seen, and then goes its own way.
    own = sizes.after(512, predicted_s=1.0, measured_s=1.0)
    assert own.ratio(512) == pytest.approx(1.15, abs=0.01)
    assert learned((448, 1.5), start=own).ratio(512) == own.ratio(512)
    assert learned((448, 1.5), start=own).ratio(384) == pytest.approx(1.5, abs=0.01)


def test_the_first_steps_of_a_size_count_as_in_a_mean() -> None:
    sizes, seen = BatchSizeCorrection(), []
    for _ in range(4):
        sizes = sizes.after(640, predicted_s=1.0, measured_s=1.2)
        seen.append(sizes.ratio(640))
    assert seen == pytest.approx([1.0 + 0.2 * n / (n + 1) for n in (1, 2, 3, 4)])


@pytest.mark.parametrize(("measured_s", "bound"), [(9.0, HIGHEST), (0.1, LOWEST)])
def test_a_ratio_is_bounded(measured_s: float, bound: float) -> None:
    sizes = BatchSizeCorrection()
    for _ in range(500):
        sizes = sizes.after(64, predicted_s=1.0, measured_s=measured_s)
    assert sizes.ratio(64) == pytest.approx(bound)


def test_a_step_beyond_the_last_size_teaches_nothing() -> None:
    sizes = BatchSizeCorrection()
    after = sizes.after(SIZES[-1] + 1, predicted_s=1.0, measured_s=1.4)
    assert (after.ratios, after.steps, after.level) == (sizes.ratios, sizes.steps, sizes.level)


def test_the_other_sizes_keep_their_ratio_when_one_is_measured() -> None:
    known = BatchSizeCorrection(tuple(0.8 + i / 100 for i in range(len(SIZES))), (20,) * len(SIZES))
    found = known.after(192, predicted_s=1.0, measured_s=1.4)
    assert len(found.ratios) == len(SIZES)
    at = SIZES.index(192)
    assert [i for i in range(len(SIZES)) if found.ratios[i] != known.ratios[i]] == [at]


def test_what_was_not_tried_of_late_is_compared_as_if_it_were_like_the_rest() -> None:
    sizes = learned((1024, 1.4), (256, 1.1))
    assert sizes.hoped(256) == pytest.approx(1.1, abs=0.02)
    assert sizes.hoped(1024) == pytest.approx(1.1, abs=0.02)  # 300 steps of a second ago
    assert sizes.ratio(1024) == pytest.approx(1.4, abs=0.01)  # but a step is planned for what was seen
    assert learned((256, 1.1), (1024, 1.4)).hoped(1024) == pytest.approx(1.4, abs=0.02)


def test_what_fused_steps_took_is_forgotten_while_none_runs() -> None:
    sizes = learned((512, 1.4))
    later = sizes.passed(FORGET_S)
    assert later.hoped(512) == pytest.approx(1.3, abs=0.02)  # half of it, above a level half forgotten
    assert sizes.passed(20 * FORGET_S).hoped(512) == pytest.approx(1.0, abs=0.001)
    assert later.ratio(512) == sizes.ratio(512)
    assert later.after(512, predicted_s=0.01, measured_s=0.014).hoped(512) > 1.35


def test_sizes_beyond_the_graphs_are_hoped_to_be_as_all() -> None:
    assert BatchSizeCorrection().hoped(100_000) == 1.0
    assert learned((512, 1.4)).hoped(100_000) == pytest.approx(1.4, abs=0.01)
