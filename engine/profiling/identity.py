"""Whether a profile is of the engine that is to use it."""

from __future__ import annotations

from pdmuxd.engine.link.compatibility import difference
from pdmuxd.engine.link.messages import Hello
from pdmuxd.engine.profiling.document import MeasuredProfile

MAX_P90 = 0.10
"""A solo predictor that is further off than this on a tenth of unseen batches must be forced into force."""


def unusable_because(profile: MeasuredProfile, hello: Hello) -> str | None:
    """What makes a profile one of another engine, however much it is wanted; None if nothing does."""
    return difference(profile.predictors(0), hello)


def doubtful_because(profile: MeasuredProfile, hello: Hello | None) -> str | None:
    """What an operator must insist on to have the profile all the same; None if nothing."""
    if profile.worst_p90 > MAX_P90:
        worst = max(
            (fit for fit in profile.fits if fit.predictor != "roofline"),
            key=lambda fit: fit.errors.p90,
            default=None,
        )
        if worst is None:
            return "no predictor of it is fitted: too little was measured"
        return (
            f"its predictor of {worst.predictor} on {worst.sms} SMs has a p90 error of "
            f"{worst.errors.p90:.1%} on held-out samples; at most {MAX_P90:.0%} is allowed"
        )
    if hello is None:
        return None
    measured = {fit.sms for fit in profile.solo_run}
    missing = sorted({sms for group in hello.partitions for sms in group if sms} - measured)
    if missing:
        listed = ", ".join(map(str, missing))
        return f"it has nothing on {listed} SMs, which the engine's partition table uses"
    return None
