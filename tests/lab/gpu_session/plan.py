"""Which steps there are, and in which order one GPU, two, or two together do them.

What only a GPU can tell comes first, as long as it is short; then the matrix, which takes what is left. With
two GPUs each model has one: what is compared with each other runs on the same one.
"""

from __future__ import annotations

from dataclasses import replace

from gpu_plans.rounds import FIRST_TABLE
from gpu_session.scale import Scale, times
from gpu_session.serving import serving_steps
from gpu_session.step import SERVED, Lane, Need, Step

PLANS = ("one", "two", "tp2", "profiles", "serving")


def lanes(plan: str, scale: Scale) -> tuple[Lane, ...]:
    """The steps of a plan by GPU."""
    small, large = "llama-8b", "codellama-34b"
    if plan == "one":
        # The small model's comparison stands before the large model's profile is paid for.
        first = (_micro(small, scale), _slo_change(small, scale), _profile(small, scale))
        then = (_matrix(scale, small, rounds=FIRST_TABLE), _profile(large, scale), _matrix(scale))
        return (Lane(gpus=(0,), steps=(*first, *then)),)
    if plan == "two":
        first = (_micro(small, scale), _slo_change(small, scale), _matrix(scale, small))
        second = (_profile(small, scale, warm=True), _profile(large, scale), _matrix(scale, large))
        return Lane(gpus=(0,), steps=first), Lane(gpus=(1,), steps=second)
    if plan == "tp2":
        return (Lane(gpus=(0, 1), steps=(_together(small, scale), _cell_together(small, scale))),)
    if plan == "serving":
        return (Lane(gpus=(0,), steps=serving_steps(small, scale, _profile)),)
    return (Lane(gpus=(0,), steps=tuple(_profile(model, scale) for model in ("qwen3-8b", "qwen3-14b"))),)


def steps_of(plan: str, scale: Scale) -> dict[str, Step]:
    """By name: those of the plan, then those of other plans that one of its lanes could do."""
    gpus = {len(lane.gpus) for lane in lanes(plan, scale)}
    return {
        step.name: step
        for other in (plan, *PLANS)
        for lane in lanes(other, scale)
        if len(lane.gpus) in gpus
        for step in lane.steps
    }


def only(plan: str, names: tuple[str, ...], scale: Scale) -> tuple[Lane, ...]:
    """The steps that are named, in the plan's order; those of other plans on the first GPU behind them."""
    found = lanes(plan, scale)
    chosen = [replace(lane, steps=tuple(step for step in lane.steps if step.name in names)) for lane in found]
    there = {step.name for lane in chosen for step in lane.steps}
    known = steps_of(plan, scale)
    others = tuple(step for name, step in known.items() if name in names and name not in there)
    chosen[0] = replace(chosen[0], steps=chosen[0].steps + others)
    return tuple(lane for lane in chosen if lane.steps)


def _micro(model: str, scale: Scale) -> Step:
    return Step(
        name=f"micro-{model}",
        plan="micro",
        words=("--model", model, *times(scale.micro_s, scale)),
        # Probes on the idle engine, then a load under each of two policies.
        expected_s=scale.start_s + 60.0 + 2 * (scale.micro_s + scale.drain_s + 4.0),
        needs=(*SERVED, Need.TRACES, Need.PREDICTORS),
    )


def _slo_change(model: str, scale: Scale) -> Step:
    return Step(
        name=f"slo-change-{model}",
        plan="slo-change",
        words=("--model", model, "--duration-s", f"{scale.slo_s:g}"),
        expected_s=scale.start_s + scale.slo_s + 20.0,
        needs=(*SERVED, Need.DAEMON),
    )


def _profile(model: str, scale: Scale, *, warm: bool = False) -> Step:
    """`warm`: on the same server, also whether work takes longer on a GPU that is kept at it."""
    words = ("--model", model, "--budget-s", f"{scale.profile_s:g}", "--check-s", f"{scale.check_s:g}")
    return Step(
        name=f"profile-{model}",
        plan="measure",
        words=(*words, "--sustained") if warm else words,
        expected_s=scale.start_s + scale.profile_s + scale.check_s + (45.0 if warm else 10.0),
        needs=(*SERVED, Need.FITS),
        keeps="profile",
    )


def _matrix(scale: Scale, *models: str, rounds: int | None = None) -> Step:
    words = (*(("--models", ",".join(models)) if models else ()), *times(scale.run_s, scale))
    return Step(
        name="-".join(("matrix", *models)),
        plan="matrix",
        words=(*words, "--rounds", str(rounds)) if rounds is not None else words,
        expected_s=scale.matrix_least_s,
        needs=(*SERVED, Need.TRACES, Need.PREDICTORS),
        after=tuple(f"profile-{model}" for model in models),
        fills_s=True,
    )


def _together(model: str, scale: Scale) -> Step:
    return Step(
        name=f"two-gpus-{model}",
        plan="two-gpus",
        words=("--model", model, "--duration-s", f"{scale.tp_s:g}"),
        expected_s=scale.start_s + scale.tp_s + 60.0,
        needs=(*SERVED, Need.TRACES, Need.PREDICTORS),
    )


def _cell_together(model: str, scale: Scale) -> Step:
    words = ("--models", model, "--only-cells", "conv:20", "--tp-size", "2", *times(scale.run_s, scale))
    return Step(
        name=f"tp2-{model}",
        plan="matrix",
        words=words,
        expected_s=scale.matrix_least_s,
        needs=(*SERVED, Need.TRACES, Need.PREDICTORS),
        fills_s=True,
    )
