"""The steps of the plan `serving`: what is claimed of serving and of partitions, on one GPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from gpu_session.scale import Scale, times
from gpu_session.step import SERVED, Need, Step

ARMS_RUN_S = 18.0
"""Of arrivals, for each of many arms on loads that are past capacity: as measured on 2026-11-23."""
SHIPPED_PROFILE_S = 330.0
KERNELS_S = 90.0


def serving_steps(model: str, scale: Scale, profile: Callable[[str, Scale], Step]) -> tuple[Step, ...]:
    """In the order of their worth: isolation, the tokens' way, load past capacity, what partitions could
    gain, a profile that the emulator can be shipped with, the papers' policies."""
    arms = replace(scale, run_s=ARMS_RUN_S if scale.engine == "gpu" else scale.run_s)
    # 16 runs on one server of ours, 4 on one of SGLang's that was started ahead.
    most_s = 2.0 * scale.start_s + 20 * (arms.run_s + scale.drain_s + 4.0)
    return (
        _flood(model, scale),
        _token_path(model, scale),
        _held_out(f"arms-{model}", 1, arms, most_s=most_s),
        _kernels("overlay"),
        _kernels("prefill-graphs"),
        profile(model, replace(scale, profile_s=SHIPPED_PROFILE_S) if scale.engine == "gpu" else scale),
        _held_out(f"papers-{model}", 3, arms, most_s=math.inf),
    )


def _flood(model: str, scale: Scale) -> Step:
    loads = ("--calm", "summaries:3", "--flood", "summaries:30")
    seconds = ("--duration-s", f"{scale.calm_s:g}", "--flood-s", f"{scale.flood_s:g}")
    return Step(
        name=f"flood-{model}",
        plan="flood",
        words=("--model", model, *loads, *seconds, "--drain-s", "6"),
        expected_s=scale.start_s + scale.calm_s + scale.flood_s + 40.0,
        needs=(*SERVED, Need.DAEMON),
        told_budget=True,
    )


def _token_path(model: str, scale: Scale) -> Step:
    """A daemon and a server for each of the two ways, with two numbers of streams."""
    warm_up_s = scale.streams_s / 2.5
    words = ("--model", model, "--seconds", f"{scale.streams_s:g}", "--warm-up-s", f"{warm_up_s:g}")
    return Step(
        name=f"token-path-{model}",
        plan="token-path",
        words=words,
        expected_s=2.0 * (scale.start_s + 2.0 * (scale.streams_s + warm_up_s + 4.0) + 5.0),
        needs=(*SERVED, Need.DAEMON),
        told_budget=True,
    )


def _held_out(name: str, rounds: int, scale: Scale, *, most_s: float) -> Step:
    words = ("--table", "held-out", "--rounds", str(rounds), "--no-anchor")
    return Step(
        name=name,
        plan="matrix",
        words=(*words, *times(scale.run_s, scale)),
        expected_s=scale.matrix_least_s,
        needs=(*SERVED, Need.TRACES, Need.PREDICTORS),
        fills_s=True,
        most_s=most_s,
        records=True,
    )


def _kernels(what: str) -> Step:
    """No server, and PyTorch alone."""
    return Step(
        name=f"kernels-{what}",
        plan="partition-kernels",
        words=(what,),
        expected_s=KERNELS_S,
        needs=(Need.GPU,),
        keeps="rows",
    )
