"""The compute/memory crossover: each equation of PLA-Serve section 2.1 with a value worked out by hand."""

from __future__ import annotations

import math

import pytest
from engines import PROFILE
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.engine.core.crossover import (
    FLOOR_TOKENS,
    MIN_SAMPLES,
    CrossoverFit,
    CrossoverSamples,
    is_short,
)
from pdmuxd.engine.core.types import PrefillSample

FIT = CrossoverFit(alpha_s=2e-9, beta_s=1e-6, gamma_w_s=2e-6, gamma_r_s=8e-6)


def sample(new: int, reused: int, fit: CrossoverFit = FIT) -> PrefillSample:
    return PrefillSample(
        new_tokens=new,
        reused_tokens=reused,
        compute_s=fit.compute_s(new, reused),
        memory_s=fit.memory_s(new, reused),
    )


def samples(*shapes: tuple[int, int], fit: CrossoverFit = FIT) -> CrossoverSamples:
    added = CrossoverSamples()
    for new, reused in shapes:
        added = added.plus(sample(new, reused, fit))
    return added


SHAPES = [(100 * i, 37 * i * i % 1000) for i in range(1, MIN_SAMPLES + 1)]


def test_compute_is_quadratic_when_tokens_attend_to_themselves_and_to_history() -> None:
    # alpha L (L + 2H) + beta L = 2e-9 * 1000 * (1000 + 4000) + 1e-6 * 1000
    assert FIT.compute_s(1000, 2000) == pytest.approx(0.011)


def test_memory_is_linear_when_kv_is_written_and_read() -> None:
    # gamma_w L + gamma_r H = 2e-6 * 1000 + 8e-6 * 2000
    assert FIT.memory_s(1000, 2000) == pytest.approx(0.018)


def test_the_crossover_is_the_first_closed_form_when_there_is_no_history() -> None:
    # (gamma_w - beta) / alpha = 1e-6 / 2e-9
    assert FIT.crossover_tokens(0) == pytest.approx(500.0)


def test_a_first_prefill_is_always_bound_by_compute_when_writing_is_cheaper() -> None:
    fit = CrossoverFit(alpha_s=1e-9, beta_s=2e-6, gamma_w_s=1e-6, gamma_r_s=1e-6)
    assert fit.crossover_tokens(0) == 0.0


def test_the_crossover_is_the_positive_root_when_there_is_history() -> None:
    # b = 2 * 2e-9 * 1000 + 1e-6 - 2e-6 = 3e-6; root = sqrt(9e-12 + 4 * 2e-9 * 8e-6 * 1000) = sqrt(73e-12)
    assert FIT.crossover_tokens(1000) == pytest.approx((math.sqrt(73) - 3) * 1e-6 / 4e-9)


def test_the_crossover_tends_to_its_limit_when_history_grows() -> None:
    # gamma_r / (2 alpha) = 8e-6 / 4e-9
    assert FIT.crossover_tokens(10**8) == pytest.approx(2000.0, rel=1e-3)


positive = st.floats(1e-9, 1e-3)


@given(positive, positive, positive, positive, st.integers(1, 100_000))
def test_compute_equals_memory_when_a_prefill_is_on_the_crossover(
    alpha_s: float, beta_s: float, gamma_w_s: float, gamma_r_s: float, reused: int
) -> None:
    fit = CrossoverFit(alpha_s=alpha_s, beta_s=beta_s, gamma_w_s=gamma_w_s, gamma_r_s=gamma_r_s)
    length = fit.reprefill_crossover_tokens(reused)
    compute_s = alpha_s * length * (length + 2 * reused) + beta_s * length
    memory_s = gamma_w_s * length + gamma_r_s * reused
    assert compute_s == pytest.approx(memory_s, rel=1e-3)
    assert length <= fit.largest_crossover_tokens * (1 + 1e-6)


def test_the_coefficients_come_back_when_the_samples_are_exact() -> None:
    fit = samples(*SHAPES).fit()
    assert fit is not None
    assert (fit.alpha_s, fit.beta_s) == pytest.approx((2e-9, 1e-6), rel=1e-6)
    assert (fit.gamma_w_s, fit.gamma_r_s) == pytest.approx((2e-6, 8e-6), rel=1e-6)


@pytest.mark.parametrize(
    "shapes",
    [
        SHAPES[:-1],
        [(100, 50)] * 20,
        [(100 * i, 0) for i in range(1, 20)],
        [(100 * i, 200 * i) for i in range(1, 20)],
    ],
    ids=["too few", "one shape", "no history", "history in proportion"],
)
def test_nothing_is_fitted_when_the_samples_do_not_tell(shapes: list[tuple[int, int]]) -> None:
    assert samples(*shapes).fit() is None


def test_nothing_is_fitted_when_the_result_would_be_unphysical() -> None:
    shrinking = CrossoverFit(alpha_s=-1e-9, beta_s=1e-3, gamma_w_s=1e-6, gamma_r_s=1e-6)
    assert samples(*SHAPES, fit=shrinking).fit() is None


@pytest.mark.parametrize(
    "bad",
    [
        PrefillSample(new_tokens=0, reused_tokens=5, compute_s=1.0, memory_s=1.0),
        PrefillSample(new_tokens=5, reused_tokens=5, compute_s=math.nan, memory_s=1.0),
    ],
)
def test_a_sample_changes_nothing_when_it_is_no_measurement(bad: PrefillSample) -> None:
    assert CrossoverSamples().plus(bad) == CrossoverSamples()


def test_the_floor_decides_when_the_fit_is_below_it_or_missing() -> None:
    assert is_short(FLOOR_TOKENS, 0, None)
    assert not is_short(FLOOR_TOKENS + 1, 0, None)
    assert is_short(499, 0, FIT)
    assert not is_short(501, 0, FIT)


def test_the_emulated_device_is_fitted_when_its_terms_are_the_samples() -> None:
    added = CrossoverSamples()
    for new, reused in SHAPES:
        added = added.plus(PROFILE.truth.prefill_terms(new, reused))
    fit = added.fit()
    assert fit is not None
    device, model = PROFILE.device, PROFILE.model
    assert fit.gamma_w_s == pytest.approx(model.kv_bytes_per_token / device.bytes_per_s, rel=1e-6)
    assert fit.beta_s == pytest.approx(2 * model.layers * model.layer_weights / device.flops, rel=1e-3)
    assert fit.crossover_tokens(100_000) < FLOOR_TOKENS
