"""Samples from known laws, and campaigns on the emulated device."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from pdmuxd.engine.core.types import DecodeShape, PrefillShape
from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.measuring import Noise, measure
from pdmuxd.engine.emulator.profile import Profile, load_profile
from pdmuxd.engine.emulator.server.telemetry import hello
from pdmuxd.engine.profiling.campaign import Campaign
from pdmuxd.engine.profiling.points import Point, Sample
from pdmuxd.engine.profiling.target import Target

SETUP_S = 0.02
"""What an engine spends on a point beside running it."""


def prefill_samples(
    law: Callable[[PrefillShape], float], *, noise: float = 0.0, seed: int = 0, sms: int = 64
) -> list[Sample]:
    """Prefills of many sizes, with log-normal scatter."""
    source = random.Random(seed)
    samples = []
    for new in (16, 64, 100, 128, 200, 256, 400, 512, 800, 1024, 1500, 2048, 3000, 4096, 8192, 12000):
        for reused in (0, 3000, 20000):
            point = Point(mode="prefill", prefill_sms=sms, decode_sms=0, prefill=((new, reused),))
            seconds = law(point.prefill_shape) * source.lognormvariate(0.0, noise)
            samples.append(Sample(point=point, prefill_s=seconds))
    return samples


def decode_samples(
    law: Callable[[DecodeShape], float], *, noise: float = 0.0, seed: int = 0, sms: int = 64
) -> list[Sample]:
    """Decode batches of many sizes and contexts, with log-normal scatter."""
    source = random.Random(seed)
    samples = []
    for bs in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        for context in (64, 1000, 4000, 16000):
            point = Point(mode="decode", prefill_sms=0, decode_sms=sms, decode=(context,) * bs)
            seconds = law(point.decode_shape) * source.lognormvariate(0.0, noise)
            samples.append(Sample(point=point, decode_s=seconds))
    return samples


def target_of(profile: Profile, *, policy: str = "auto") -> Target:
    """An emulated engine that believes wrongly: a third too much compute, a fifth too much bandwidth."""
    engine = EmulatedEngine(profile=profile, policy=policy)
    device = replace(
        profile.device,
        flops=profile.device.flops * 1.35,
        bytes_per_s=profile.device.bytes_per_s * 1.2,
        bandwidth_curvature=3.2,
    )
    overheads = replace(
        profile.overheads,
        layer_launch_s=0.0002,
        graph_launch_s=0.0002,
        host_step_s=0.001,
        layer_fixed_s=0.00001,
    )
    greeting = hello(engine, model="m", version="0")
    return Target.of(msgspec.structs.replace(greeting, device_shape=device, overheads=overheads))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A campaign that has ended."""

    target: Target
    samples: list[Sample]
    device_s: float
    """What the device was busy for."""


def run_campaign(
    *, budget_s: float, noise: float, profile: str = "h200-llama-8b", stop_after: int | None = None
) -> Measured:
    """Measure the emulated device, whose clock is what its work takes."""
    hidden = load_profile(profile)
    target = target_of(hidden)
    table = EmulatedEngine(profile=hidden, policy="auto").table
    campaign = Campaign(target, budget_s=budget_s)
    elapsed_s, number = 0.0, 0
    while (step := campaign.next(elapsed_s)) is not None and number != stop_after:
        answer = measure(
            hidden, table, step.point.to_measure(number, step.repeats), Noise(ratio=noise, seed=1)
        )
        busy_s = answer.prefill_s if step.point.mode in ("prefill", "beside") else answer.decode_s
        took_s = sum(busy_s) + SETUP_S
        campaign.add(Sample.of(step.point, answer), took_s)
        elapsed_s += took_s
        number += 1
    return Measured(target=target, samples=campaign.samples, device_s=elapsed_s)
