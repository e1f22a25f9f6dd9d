"""Samples from known laws, and campaigns on the emulated device."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import msgspec

from pdmuxd.engine.core.latency import DecodeCoefficients, PrefillCoefficients, padded_bs
from pdmuxd.engine.core.types import DecodeShape, PrefillShape
from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.measuring import Noise, measure
from pdmuxd.engine.emulator.profile import Profile, load_profile
from pdmuxd.engine.emulator.server.telemetry import hello
from pdmuxd.engine.link import measuring as link
from pdmuxd.engine.link.messages import Hello, IterationRecord
from pdmuxd.engine.link.predictors import SoloRun
from pdmuxd.engine.profiling import design_points
from pdmuxd.engine.profiling.assemble import assemble
from pdmuxd.engine.profiling.campaign import Campaign
from pdmuxd.engine.profiling.document import (
    FORMAT,
    FitErrors,
    GuardSummary,
    MeasuredProfile,
    Provenance,
)
from pdmuxd.engine.profiling.measurement import Point, Sample, Target
from pdmuxd.engine.profiling.solo import Errors

SETUP_S = 0.034
"""What an engine spends on a point beside running it: SGLang on one H200, 2026-11-21."""
SLOW_S = 4.0
"""How long a host stays slow; one H200's was for several seconds of a campaign (2026-11-21)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowHost(Noise):
    """A host that launches slower for seconds on end, in a fifth of the time, and stalls besides."""

    def launching(self, at_s: float) -> float:
        """What launching takes at an instant, over what it takes on the whole."""
        source = random.Random(f"{self.seed} slow {int(at_s / SLOW_S)}")
        slower = source.uniform(1.15, 1.6) if source.random() < 0.2 else 1.0
        return slower * Noise.launching(self, at_s)


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


def fused_samples(
    law: Callable[[PrefillShape, DecodeShape], float], *, noise: float = 0.0, seed: int = 0, sms: int = 132
) -> list[Sample]:
    """Mixed batches: small and large chunks beside one long context or many short ones, with scatter."""
    source = random.Random(seed)
    samples = []
    for new in (32, 128, 200, 256, 512, 700, 1024, 2048, 4096):
        for reused in (0, 8192):
            for contexts in ((512,), (8192,), (512,) * 64, (8192,) * 32):
                point = Point(
                    mode="fused", prefill_sms=sms, decode_sms=sms, prefill=((new, reused),), decode=contexts
                )
                seconds = law(point.prefill_shape, point.decode_shape) * source.lognormvariate(0.0, noise)
                samples.append(Sample(point=point, decode_s=seconds))
    return samples


NO_GRAPHS: Mapping[int, float] = MappingProxyType({})


def graph_s(
    hidden: Profile, graphs: Mapping[int, float], prefill: PrefillShape, decode: DecodeShape
) -> float:
    """What a fused batch takes as a graph: the tokens that the graph has, and seconds of its own."""
    tokens = prefill.new_tokens + decode.bs
    size = padded_bs(tokens, tuple(graphs))
    whole = replace(prefill, new_tokens=prefill.new_tokens + size - tokens)
    return hidden.truth.fused_s(whole, decode, hidden.device.total_sms) + graphs.get(size, 0.0)


def target_of(profile: Profile, *, policy: str = "auto", fused_tokens: tuple[int, ...] = ()) -> Target:
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
    prior = {"device_shape": device, "overheads": overheads, "captured_fused_tokens": fused_tokens}
    return Target.of(msgspec.structs.replace(greeting, **prior))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A campaign that has ended."""

    target: Target
    samples: list[Sample]
    device_s: float
    """What the device was busy for."""


def run_campaign(
    *,
    budget_s: float,
    noise: Noise,
    hidden: Profile,
    stop_after: int | None = None,
    graphs: Mapping[int, float] = NO_GRAPHS,
    unsplit: str = "",
) -> Measured:
    """Measure the emulated device, whose clock is what its work takes, warming up included.

    `graphs` are those of fused batches, by tokens: seconds that each takes beside its work. `unsplit`: why
    the engine's model cannot be split.
    """
    target = target_of(hidden, fused_tokens=tuple(graphs))
    if unsplit:
        whole = tuple(group for group in target.hello.partitions if not all(group))
        greeting = msgspec.structs.replace(target.hello, partitions=whole, unsplit=unsplit)
        target = replace(target, hello=greeting)
    table = EmulatedEngine(profile=hidden, policy="auto").table
    campaign = Campaign(target, budget_s=budget_s)
    elapsed_s, number = 0.0, 0
    while (step := campaign.next(elapsed_s)) is not None and number != stop_after:
        answer = measure(hidden, table, step.point.to_measure(number, step.repeats), noise, at_s=elapsed_s)
        if step.point.mode == "fused" and graphs:
            answer = _as_graph(answer, step.point, hidden, graphs, noise)
        busy_s = answer.prefill_s if step.point.mode in ("prefill", "colocated") else answer.decode_s
        warm_up_s = 0.0 if step.point.mode == "colocated" else busy_s[0]
        took_s = sum(busy_s) + warm_up_s + SETUP_S
        campaign.add(Sample.of(step.point, answer), took_s)
        elapsed_s += took_s
        number += 1
    return Measured(target=target, samples=campaign.samples, device_s=elapsed_s)


def assembled(campaign: Measured) -> MeasuredProfile:
    """The profile that its samples make."""
    return assemble(
        "p",
        campaign.target,
        campaign.samples,
        measured_at="2026-01-31T12:00:00Z",
        took_s=campaign.device_s,
        interrupted=False,
    )


def _as_graph(
    answer: link.Measured, point: Point, hidden: Profile, graphs: Mapping[int, float], noise: Noise
) -> link.Measured:
    """One launch, where the emulated engine launches layers."""
    if point.prefill_shape.new_tokens + len(point.decode) > max(graphs):
        return answer
    each_s = (graph_s(hidden, graphs, point.prefill_shape, point.decode_shape),) * len(answer.decode_s)
    return msgspec.structs.replace(answer, decode_s=noise.on(each_s, answer.point_id, "graph"))


def measured_pairs(target: Target, hidden: Profile, *, noise: Noise, each: int) -> list[Sample]:
    """So many pairs of each split, drawn from the guard's grid whatever they take."""
    source = random.Random(7)
    table = EmulatedEngine(profile=hidden, policy="auto").table
    samples = []
    for split in target.splits:
        pool = design_points.colocated_points(target, split, max_point_s=0.6)
        for number, point in enumerate(source.sample(pool, min(each, len(pool)))):
            samples.append(Sample.of(point, measure(hidden, table, point.to_measure(number, 1), noise)))
    return samples


def measured_profile(
    name: str = "p", *, p90: float = 0.02, profile: str = "h200-llama-8b"
) -> MeasuredProfile:
    """A small profile of an emulated engine, made by hand."""
    hidden = load_profile(profile)
    greeting = hello(EmulatedEngine(profile=hidden, policy="auto"), model="m", version="0")
    sizes = sorted({sms for group in greeting.partitions for sms in group if sms})
    law = PrefillCoefficients(per_new_squared_s=0.0, per_new_times_reused_s=0.0, per_new_s=1e-5, fixed_s=0.01)
    step = DecodeCoefficients(per_reused_s=0.0, per_request_s=1e-5, fixed_s=0.005)
    points = [
        Point(mode="prefill", prefill_sms=sizes[-1], decode_sms=0, prefill=((new, 0),))
        for new in (128, 1024, 4096)
    ]
    return MeasuredProfile(
        format=FORMAT,
        name=name,
        provenance=Provenance(
            device=greeting.device,
            driver="",
            engine="emulator",
            engine_version="0",
            sglang_version="",
            model="m",
            model_hash=greeting.model_hash,
            measured_at="2026-01-31T12:00:00Z",
            took_s=90.0,
            samples=len(points),
        ),
        total_sms=hidden.device.total_sms,
        partitions=greeting.partitions,
        model=hidden.model,
        device=hidden.device,
        overheads=hidden.overheads,
        tensor_parallel=hidden.tensor_parallel,
        kv_capacity_tokens=hidden.kv_capacity_tokens,
        max_decode_bs=256,
        captured_decode_bs=(1, 2, 4, 8),
        solo_run=tuple(SoloRun(sms=sms, prefill=law, decode=step) for sms in sizes),
        fits=tuple(
            FitErrors(
                predictor=predictor,
                sms=sizes[-1],
                samples=20,
                outliers=0,
                errors=Errors(p50=p90 / 2, p90=p90, max=2 * p90),
            )
            for predictor in ("prefill", "decode")
        ),
        guard_default_ratio=1.1,
        guard_cells=(((36, 2, 0, 5, 3), 1.2),),
        guard=GuardSummary(pairs=300, exceeded_ratio=0.0, overestimate_ratio=0.05),
        contention_ratio=0.1,
        samples=tuple(Sample(point=one, prefill_s=law.predict_s(one.prefill_shape)) for one in points),
    )


def decode_record(
    decode: DecodeShape, prefill: PrefillShape | None, *, alone_s: float, ratio: float
) -> IterationRecord:
    """A decode step on 36 SMs, beside a prefill or not, that took `ratio` times what is predicted alone."""
    return IterationRecord(
        step=1,
        now_s=0.0,
        mode="split",
        reason="best_fit",
        partition_id=2,
        prefill_sms=96,
        decode_sms=36,
        decode_bs=decode.bs,
        decode_reused_tokens=decode.reused_tokens,
        prefill_new_tokens=prefill.new_tokens if prefill is not None else 0,
        prefill_layers=4,
        predicted_decode_s=alone_s,
        measured_step_s=alone_s * ratio,
        guard_ratio=None,
        tbt_slack_s=None,
        measured_decode_s=alone_s * ratio,
        prefill_bs=prefill.bs if prefill is not None else 0,
        prefill_sum_new_squared=prefill.sum_new_squared if prefill is not None else 0,
    )


def greeting_of(profile: str = "h200-llama-8b", policy: str = "auto") -> Hello:
    """How an emulated engine introduces itself."""
    return hello(EmulatedEngine(profile=load_profile(profile), policy=policy), model="m", version="0")
