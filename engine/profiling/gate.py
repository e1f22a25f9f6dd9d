"""Whether an engine may use a profile, and which of its parts: each predictor is judged by itself.

A part that is doubtful leaves the others in force. Where the roofline, fitted to the same GPU, predicts
better, it stands in for the part; elsewhere the part predicts all the same, and what that may cost is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import structs

from pdmuxd.engine.link.compatibility import difference
from pdmuxd.engine.link.messages import Hello
from pdmuxd.engine.link.predictors import SoloRun
from pdmuxd.engine.profiling.document import FitErrors, MeasuredProfile

MAX_P90 = 0.10
"""A predictor whose p90 error on unseen batches is larger than this is doubtful."""
_EXAMPLE_TTFT_S, _EXAMPLE_STEP_MS = 1.0, 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A predictor that is doubtful, on a number of SMs; 0: on all."""

    predictor: str
    sms: int
    is_replaced: bool
    """The roofline predicts better, and does so unless the operator insists."""
    text: str
    """What is wrong, what predicts instead, and what it would cost."""


def unusable_because(profile: MeasuredProfile, hello: Hello) -> str | None:
    """Why a profile belongs to another engine and cannot be used even if the operator insists; None if it
    can."""
    return difference(profile.predictors(0), hello)


def refused_because(profile: MeasuredProfile, hello: Hello | None) -> str | None:
    """Why a profile is used only if the operator insists: no part of it can be trusted, or it lacks an SM
    count of the engine; None if it is used."""
    fits, told = _fitted(profile.fits), doubts(profile)
    if not fits:
        return "no predictor of it is fitted: too little was measured"
    if all(any(_is_of(one, fit.predictor, fit.sms) for one in told) for fit in fits):
        return f"every predictor of it is doubtful: {told[0].text}"
    measured = {run.sms for run in profile.solo_run}
    needed = {sms for group in hello.partitions for sms in group if sms} if hello is not None else set()
    if needed - measured:
        listed = ", ".join(map(str, sorted(needed - measured)))
        return f"it has nothing on {listed} SMs, which the engine's partition table uses"
    return None


def doubts(profile: MeasuredProfile) -> tuple[Doubt, ...]:
    """Every part that is doubtful; empty if none is."""
    return _doubts(profile.fits)


def trusted(profile: MeasuredProfile) -> MeasuredProfile:
    """The profile without the predictors that the roofline replaces."""
    kept = trusted_runs(profile.solo_run, profile.fits)
    return profile if kept == profile.solo_run else structs.replace(profile, solo_run=kept)


def trusted_runs(solo_run: Sequence[SoloRun], fits: Sequence[FitErrors]) -> tuple[SoloRun, ...]:
    """The predictors without those that the roofline replaces."""
    replaced = [one for one in _doubts(fits) if one.is_replaced]

    def kept(run: SoloRun) -> SoloRun:
        return structs.replace(
            run,
            **{
                name: None
                for name in ("prefill", "decode", "fused")
                if any(_is_of(one, name, run.sms) for one in replaced)
            },
        )

    return tuple(kept(run) for run in solo_run)


def _fitted(fits: Sequence[FitErrors]) -> list[FitErrors]:
    return [fit for fit in fits if fit.predictor != "roofline"]


def _doubts(fits: Sequence[FitErrors]) -> tuple[Doubt, ...]:
    return tuple(_doubt(fit) for fit in _fitted(fits) if _is_doubtful(fits, fit))


def _is_of(doubt: Doubt, predictor: str, sms: int) -> bool:
    return doubt.predictor == predictor and doubt.sms in (0, sms)


def _is_doubtful(fits: Sequence[FitErrors], fit: FitErrors) -> bool:
    """Where one law is fitted to all SM counts, a few samples on one of them say little of its p90: that is
    judged over all, and on each that half of the predictions are good."""
    has_law = any(one.predictor == fit.predictor and not one.sms for one in fits)
    if has_law and fit.sms:
        return fit.errors.p50 > MAX_P90
    return fit.errors.p90 > MAX_P90


def _doubt(fit: FitErrors) -> Doubt:
    roofline = fit.roofline_p90
    is_replaced = roofline is not None and roofline < fit.errors.p90
    if is_replaced:
        instead = f"the roofline fitted to this GPU predicts it instead (p90 {roofline:.1%})"
    elif roofline is not None:
        instead = f"it predicts all the same, since the roofline is worse (p90 {roofline:.1%})"
    else:
        instead = "it predicts all the same"
    off = min(fit.errors.p90, roofline) if is_replaced and roofline is not None else fit.errors.p90
    where = f"on {fit.sms} SMs" if fit.sms else "on all SM counts"
    return Doubt(
        predictor=fit.predictor,
        sms=fit.sms,
        is_replaced=is_replaced,
        text=(
            f"{fit.predictor} {where} has a p90 error of {fit.errors.p90:.1%} on held-out samples, at most "
            f"{MAX_P90:.0%} is allowed; {instead}; {_cost(fit.predictor, off)}"
        ),
    )


def _cost(predictor: str, off: float) -> str:
    if predictor == "prefill":
        return f"a first token that is expected after {_EXAMPLE_TTFT_S:g} s may take {1.0 + off:.2f} s"
    return (
        f"a step that is planned for {_EXAMPLE_STEP_MS:g} ms may take {_EXAMPLE_STEP_MS * (1.0 + off):.0f} ms"
    )
