"""Measuring the emulated device: what a point takes by the profile's truth, with scatter if asked for."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from pdmuxd.engine.core.partitions import PartitionTable
from pdmuxd.engine.core.types import DecodeShape, PrefillShape
from pdmuxd.engine.emulator.graphs import padded
from pdmuxd.engine.emulator.profile import Profile
from pdmuxd.engine.link.measuring import Measure, Measured

LAUNCH_STRETCH_S = 0.1
STALLED_SHARE = 0.1
STALLED_RATIO = (1.3, 2.1)
"""Launching on one H200's host (SGLang 0.5.23, 32 layers, 2026-11-21): for stretches of a tenth of a second
it takes up to twice as long, in about a tenth of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Log-normal scatter of `ratio` around the truth; the same for the same seed and point."""

    ratio: float = 0.0
    launch_ratio: float = 0.0
    """Scatter of launching layers. It is the same for a stretch of time, and some stretches stall; 0:
    neither."""
    seed: int = 0

    def launching(self, at_s: float) -> float:
        """What launching takes at an instant, relative to what it takes on average."""
        if not self.launch_ratio:
            return 1.0
        source = random.Random(f"{self.seed} launch {int(at_s / LAUNCH_STRETCH_S)}")  # noqa: S311 - scatter
        if source.random() < STALLED_SHARE:
            return source.uniform(*STALLED_RATIO)
        return math.exp(source.gauss(0.0, self.launch_ratio))

    def on(self, seconds: tuple[float, ...], point_id: int, kind: str) -> tuple[float, ...]:
        """What a clock would have shown."""
        if not self.ratio:
            return seconds
        source = random.Random(f"{self.seed} {point_id} {kind}")  # noqa: S311 - scatter, not a secret
        return tuple(one * math.exp(source.gauss(0.0, self.ratio)) for one in seconds)


NO_NOISE = Noise()


def measure(
    profile: Profile, table: PartitionTable, asked: Measure, noise: Noise = NO_NOISE, at_s: float = 0.0
) -> Measured:
    """Answer a Measure that comes at an instant; what the device cannot run is an error in the answer."""
    prefill, decode = PrefillShape.of(asked.prefill), DecodeShape.of(asked.decode)
    refusal = _refusal(profile, table, asked, prefill, decode)
    if refusal is not None:
        return Measured(point_id=asked.point_id, error=refusal)
    prefill_s: tuple[float, ...] = ()
    decode_s: tuple[float, ...] = ()
    launch_s: tuple[float, ...] = ()
    match asked.mode:
        case "prefill":
            prefill_s = (profile.truth.prefill_cost(prefill, asked.prefill_sms).seconds,) * asked.repeats
            launch_s = _launches(profile, prefill_s, noise, at_s)
        case "decode":
            decode_s = (_decode_s(profile, decode, asked.decode_sms),) * asked.repeats
        case "fused":
            decode_s = (profile.truth.fused_device_s(prefill, decode, asked.prefill_sms),) * asked.repeats
            launch_s = _launches(profile, decode_s, noise, at_s)
        case "colocated":
            each_prefill_s, steps = _colocated(profile, asked, prefill, decode)
            prefill_s, decode_s = (each_prefill_s,) * asked.repeats, steps * asked.repeats
    return Measured(
        point_id=asked.point_id,
        prefill_s=noise.on(prefill_s, asked.point_id, "prefill"),
        decode_s=noise.on(decode_s, asked.point_id, "decode"),
        launch_s=launch_s,
    )


def _launches(profile: Profile, runs_s: tuple[float, ...], noise: Noise, at_s: float) -> tuple[float, ...]:
    """What the host takes to launch the layers of one run after the other, each at its instant."""
    launch_s = profile.overheads.layer_launch_s * profile.model.layers
    found: list[float] = []
    for number in range(len(runs_s)):
        found.append(launch_s * noise.launching(at_s + sum(runs_s[:number]) + sum(found)))
    return tuple(found)


def _decode_s(profile: Profile, decode: DecodeShape, sms: int) -> float:
    return profile.truth.decode_s(padded(decode), sms)


def _colocated(
    profile: Profile, asked: Measure, prefill: PrefillShape, decode: DecodeShape
) -> tuple[float, tuple[float, ...]]:
    """One prefill, and the decode steps that began and ended while it ran."""
    device = profile.new_device(serves=False)
    overheads = profile.overheads
    prefill_cost = profile.truth.prefill_cost(prefill, asked.prefill_sms)
    decode_cost = profile.truth.decode_cost(padded(decode), asked.decode_sms)
    solo_s = profile.truth.prefill_s(prefill, asked.prefill_sms)
    whole = device.launch(
        device.prefill, solo_s=solo_s, sms=asked.prefill_sms, hbm_bytes=prefill_cost.hbm_bytes
    )
    step_s, steps = decode_cost.seconds + overheads.graph_launch_s, list[float]()
    while device.prefill.is_busy:
        begun_s = device.now_s
        step = device.launch(
            device.decode, solo_s=step_s, sms=asked.decode_sms, hbm_bytes=decode_cost.hbm_bytes
        )
        device.run_until(step.end)
        if whole.end.at_s is not None and whole.end.at_s < device.now_s:
            break
        device.run_to(device.now_s + overheads.host_step_s)
        steps.append(device.now_s - begun_s)
    return device.run_until(whole.end), tuple(steps)


def _refusal(
    profile: Profile, table: PartitionTable, asked: Measure, prefill: PrefillShape, decode: DecodeShape
) -> str | None:
    total_sms = profile.device.total_sms
    sms = (asked.prefill_sms, asked.decode_sms)
    if asked.repeats < 0:
        return f"repeats is {asked.repeats}; it must not be negative"
    if asked.mode != "decode" and not prefill.new_tokens:
        return f"mode {asked.mode} needs a prefill"
    if asked.mode != "prefill" and not decode.bs:
        return f"mode {asked.mode} needs a decode batch"
    wanted = {"prefill": sms[:1], "decode": sms[1:]}.get(asked.mode, sms)
    if not all(0 < size <= total_sms for size in wanted):
        return f"{sms[0]},{sms[1]} SMs are not possible on {total_sms} SMs for mode {asked.mode}"
    groups = {(group.prefill_sms, group.decode_sms) for group in table.groups}
    if asked.mode == "colocated" and sms not in groups:
        return f"{sms[0]},{sms[1]} SMs are no partition group of the engine"
    tokens = prefill.new_tokens + prefill.reused_tokens + decode.reused_tokens + decode.bs
    if tokens > profile.kv_capacity_tokens:
        return f"the point needs {tokens} KV tokens; the engine holds {profile.kv_capacity_tokens}"
    return None
