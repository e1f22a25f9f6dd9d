"""Which parts of a profile come into force, and what is said of the others."""

from __future__ import annotations

import msgspec
import pytest
from profiling import greeting_of, measured_profile

from pdmuxd.engine.core.latency import FusedCoefficients
from pdmuxd.engine.profiling.document import FitErrors, MeasuredProfile
from pdmuxd.engine.profiling.gate import MAX_P90, doubts, refused_because, trusted, unusable_because
from pdmuxd.engine.profiling.solo import Errors

PROFILE, HELLO = measured_profile(), greeting_of()
SIZES = [run.sms for run in PROFILE.solo_run]


def judged(
    predictor: str, sms: int, p90: float, *, p50: float = 0.01, roofline: float | None = 0.2
) -> FitErrors:
    errors = Errors(p50=p50, p90=p90, max=2 * p90)
    return FitErrors(
        predictor=predictor, sms=sms, samples=20, outliers=0, errors=errors, roofline_p90=roofline
    )


def with_fits(*fits: FitErrors) -> MeasuredProfile:
    return msgspec.structs.replace(PROFILE, fits=fits)


def test_a_profile_of_this_engine_is_used_without_doubt() -> None:
    assert unusable_because(PROFILE, HELLO) is None
    assert refused_because(PROFILE, HELLO) is None
    assert doubts(PROFILE) == ()
    assert trusted(PROFILE) is PROFILE


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"device": "NVIDIA B200"}, "the engine runs on a NVIDIA B200"),
        ({"total_sms": 100}, "it is of 132 SMs, the engine has 100"),
        ({"model_hash": "other"}, "the engine serves m, which is other"),
    ],
)
def test_a_profile_of_another_engine_is_unusable(changes: dict[str, object], says: str) -> None:
    assert says in str(unusable_because(PROFILE, msgspec.structs.replace(HELLO, **changes)))


def test_a_doubtful_predictor_leaves_the_others_in_force_and_tells_its_cost() -> None:
    profile = with_fits(
        judged("prefill", SIZES[0], 0.04),
        judged("prefill", SIZES[1], 0.143, roofline=0.08),
        judged("decode", SIZES[1], MAX_P90),
    )
    assert refused_because(profile, HELLO) is None
    (told,) = doubts(profile)
    assert told.text == (
        f"prefill on {SIZES[1]} SMs has a p90 error of 14.3% on held-out samples, at most 10% is allowed; "
        "the roofline fitted to this GPU predicts it instead (p90 8.0%); a first token that is expected "
        "after 1 s may take 1.08 s"
    )
    first, second = trusted(profile).solo_run[:2]
    assert first == PROFILE.solo_run[0]
    assert second.prefill is None
    assert second.decode == PROFILE.solo_run[1].decode
    assert trusted(profile).predictors(1).by_roofline == (("prefill", SIZES[1]),)
    assert PROFILE.predictors(1).by_roofline == ()


@pytest.mark.parametrize(
    ("roofline", "says"), [(0.3, "the roofline is worse (p90 30.0%)"), (None, "all the same")]
)
def test_a_doubtful_predictor_predicts_where_nothing_is_better(roofline: float | None, says: str) -> None:
    run = msgspec.structs.replace(
        PROFILE.solo_run[-1],
        fused=FusedCoefficients(prefill=PROFILE.solo_run[-1].prefill, per_reused_s=0.0),
    )
    profile = msgspec.structs.replace(
        with_fits(judged("decode", 20, 0.01), judged("fused", run.sms, 0.2, roofline=roofline)),
        solo_run=(*PROFILE.solo_run[:-1], run),
    )
    (told,) = doubts(profile)
    assert says in told.text
    assert told.text.endswith("a step that is planned for 50 ms may take 60 ms")
    assert trusted(profile) is profile


def test_one_law_is_judged_over_all_sm_counts_and_on_each_by_half_of_its_samples() -> None:
    some = judged("prefill", SIZES[0], 0.18, p50=0.05)
    assert doubts(with_fits(judged("prefill", 0, 0.06), some)) == ()
    off = judged("prefill", SIZES[0], 0.18, p50=0.12, roofline=0.1)
    (told,) = doubts(with_fits(judged("prefill", 0, 0.06), off))
    assert told.sms == SIZES[0]
    bad = with_fits(judged("prefill", 0, 0.12, roofline=0.1), judged("decode", 20, 0.01))
    assert "prefill on all SM counts" in doubts(bad)[0].text
    assert all(run.prefill is None for run in trusted(bad).solo_run)


def test_a_profile_is_refused_when_nothing_of_it_can_be_trusted() -> None:
    assert refused_because(with_fits(), None) == "no predictor of it is fitted: too little was measured"
    worse = with_fits(judged("prefill", 20, 0.2), judged("decode", 20, 0.3))
    assert str(refused_because(worse, None)).startswith(
        "every predictor of it is doubtful: prefill on 20 SMs"
    )


def test_sm_counts_without_a_measurement_must_be_insisted_on_when_an_engine_uses_them() -> None:
    bare = msgspec.structs.replace(PROFILE, solo_run=PROFILE.solo_run[1:])
    assert refused_because(bare, None) is None, "no engine says which it needs"
    assert refused_because(bare, HELLO) == (
        f"it has nothing on {SIZES[0]} SMs, which the engine's partition table uses"
    )
