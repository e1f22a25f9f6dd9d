"""The device as it is served, loads that nothing was tuned on, and what is said of one run.

The emulator's shipped profile of Llama-8B is of whole-device kernels and even splits; the engine serves
partition kernels and splits of whole groups. A comparison of fused steps and splits comes out otherwise on
the two (docs/decisions/0040-the-slower-of-prefill-and-slots.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import msgspec
import numpy as np
from ship_profile import serving_profile
from tenant_floods import TARGET, run

from pdmuxd.daemon.replay.generate import KINDS, Kind, Lengths, Part, generate
from pdmuxd.engine.emulator.noise import DeviceNoise
from pdmuxd.engine.emulator.profile import Profile, load_profile
from pdmuxd.engine.emulator.requests import EmulatedRequest

SERVED, SERVED_H100 = "served", "served-h100"
"""Llama-8B on an H200 and on an H100 as SGLang serves it: partition kernels, the engine's own splits."""
SHIPPED = {SERVED: "h200-llama-8b-served", SERVED_H100: "h100-llama-8b-served"}


def _kind(about: str, *parts: tuple[float, tuple[float, float, int], tuple[float, float, int]]) -> Kind:
    made = []
    for share, (median, sigma, most), (out, out_sigma, out_most) in parts:
        tokens = Lengths(median=median, sigma=sigma, most=most)
        answer = Lengths(median=out, sigma=out_sigma, most=out_most)
        made.append(Part(share=share, input_tokens=tokens, output_tokens=answer))
    return Kind(about=about, parts=tuple(made))


HELD_OUT: Mapping[str, Kind] = {
    "held-chat": _kind("short prompts and answers", (1.0, (120, 0.85, 8_000), (38, 0.6, 1_000))),
    "held-summaries": _kind("articles", (1.0, (2_600, 0.5, 30_000), (140, 0.5, 1_000))),
    "held-documents": _kind(
        "long documents among questions",
        (0.3, (18_000, 0.6, 100_000), (150, 0.65, 1_500)),
        (0.7, (500, 1.0, 8_000), (150, 0.65, 1_500)),
    ),
    "held-tools": _kind(
        "as of calls of tools",
        (0.5, (12_000, 0.9, 100_000), (200, 0.7, 2_000)),
        (0.5, (3_000, 1.0, 60_000), (200, 0.7, 2_000)),
    ),
    "held-reasoning": _kind("long answers", (1.0, (300, 0.9, 8_000), (900, 0.8, 8_000))),
}
"""Shapes that no constant of a policy was chosen by, near those of `pdmuxd generate`."""


AT_WORK = (1.013, 0.0, 8.4)
"""Fused steps over the law of a campaign that measures them on a device at work, us of each step, and us of
each request that decodes in it: 6,907 steps of one H100 (docs/measurements/h100.md, 2026-11-27)."""


@cache
def device(name: str) -> Profile:
    """`served`, `served-h100`, or a profile that the emulator ships, or a file. Raises: ProfileError."""
    return load_profile(SHIPPED.get(name, name))


def measured(path: Path) -> Profile:
    """The device of a campaign's profile, as it serves, with the host of an H100. Raises: ProfileError."""
    fused_ratio, fused_step_us, fused_request_us = AT_WORK
    return serving_profile(
        path,
        path.name.partition(".")[0],
        fused_serving_ratio=fused_ratio,
        colocated_serving_ratio=1.065,  # of the H200: what is beside splits was not measured on an H100
        fused_step_us=fused_step_us,
        fused_request_us=fused_request_us,
        decode_in_whole_groups=True,
        with_host=True,
    )


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """What a run came to. Shares are in percent."""

    good: float
    second_half: float
    """Of those that arrive in the second half: far under the whole, the rate is more than is held."""
    quartiles: tuple[float, float, float, float]
    """By new tokens, the shortest first."""
    ttft_p50_s: float
    late_p99_s: float
    """How late first tokens come, p99 over all requests; one that got none counts until its end."""
    requests: int


def arrivals(kind: str, rate_per_s: float, duration_s: float, seed: int) -> list[EmulatedRequest]:
    """A load of one tenant."""
    kinds = {**KINDS, **HELD_OUT}
    return [
        EmulatedRequest(
            request_id=str(row.line),
            tenant="a",
            arrival_s=row.arrival_s,
            input_tokens=row.input_tokens,
            output_tokens=row.output_tokens,
            block_keys=row.prefix_ids,
            answer_keys=row.answer_ids,
        )
        for row in generate(kind, rate_per_s=rate_per_s, duration_s=duration_s, seed=seed, kinds=kinds)
    ]


def cell(
    policy: str, load: Sequence[EmulatedRequest], profile: Profile, noise: DeviceNoise, tbt_s: float
) -> Cell:
    """One run, in virtual time."""
    slo = replace(TARGET.slo, tbt_s=tbt_s)
    targets = {"a": replace(TARGET, slo=slo)}
    outcomes, good = run(policy, load, targets, replace(profile, noise=noise))
    new_tokens = np.maximum(outcomes.input_tokens - outcomes.reused_tokens, 1)
    target_s = np.array([slo.ttft_target_s(int(tokens)) for tokens in new_tokens])
    waited_s = np.where(np.isfinite(outcomes.ttft_s), outcomes.ttft_s, outcomes.end_s - outcomes.arrival_s)
    quartile = np.searchsorted(np.quantile(new_tokens, [0.25, 0.5, 0.75]), new_tokens)
    is_second = outcomes.arrival_s >= outcomes.arrival_s.max() / 2
    shares = [round(100.0 * float(good[quartile == part].mean()), 1) for part in range(4)]
    return Cell(
        good=round(100.0 * float(good.mean()), 2),
        second_half=round(100.0 * float(good[is_second].mean()), 2),
        quartiles=(shares[0], shares[1], shares[2], shares[3]),
        ttft_p50_s=round(float(np.median(waited_s)), 3),
        late_p99_s=round(float(np.quantile(np.maximum(0.0, waited_s - target_s), 0.99)), 2),
        requests=len(load),
    )
