"""Measuring the emulated device: what a point takes by the profile's truth, with scatter if asked for."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from pdmuxd.engine.core.partitions import PartitionTable
from pdmuxd.engine.core.types import DecodeShape, PrefillShape
from pdmuxd.engine.emulator.device import Device
from pdmuxd.engine.emulator.graphs import padded
from pdmuxd.engine.emulator.profile import Profile
from pdmuxd.engine.link.measuring import Measure, Measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Log-normal scatter of `ratio` around the truth; the same for the same seed and point."""

    ratio: float = 0.0
    seed: int = 0

    def on(self, seconds: tuple[float, ...], point_id: int, kind: str) -> tuple[float, ...]:
        """What a clock would have shown."""
        if not self.ratio:
            return seconds
        source = random.Random(f"{self.seed} {point_id} {kind}")  # noqa: S311 - scatter, not a secret
        return tuple(one * math.exp(source.gauss(0.0, self.ratio)) for one in seconds)


NO_NOISE = Noise()


def measure(profile: Profile, table: PartitionTable, asked: Measure, noise: Noise = NO_NOISE) -> Measured:
    """Answer a Measure; what the device cannot run is an error in the answer."""
    prefill, decode = PrefillShape.of(asked.prefill), decode_shape(asked.decode)
    refusal = _refusal(profile, table, asked, prefill, decode)
    if refusal is not None:
        return Measured(point_id=asked.point_id, error=refusal)
    prefill_s: tuple[float, ...] = ()
    decode_s: tuple[float, ...] = ()
    match asked.mode:
        case "prefill":
            prefill_s = (profile.truth.prefill_s(prefill, asked.prefill_sms),) * asked.repeats
        case "decode":
            decode_s = (_decode_s(profile, decode, asked.decode_sms),) * asked.repeats
        case "fused":
            decode_s = (profile.truth.fused_s(prefill, decode, asked.prefill_sms),) * asked.repeats
        case "beside":
            each_prefill_s, steps = _beside(profile, asked, prefill, decode)
            prefill_s, decode_s = (each_prefill_s,) * asked.repeats, steps * asked.repeats
    return Measured(
        point_id=asked.point_id,
        prefill_s=noise.on(prefill_s, asked.point_id, "prefill"),
        decode_s=noise.on(decode_s, asked.point_id, "decode"),
    )


def decode_shape(contexts: tuple[int, ...]) -> DecodeShape:
    """A batch from the context of each of its requests."""
    return DecodeShape(bs=len(contexts), reused_tokens=sum(contexts))


def _decode_s(profile: Profile, decode: DecodeShape, sms: int) -> float:
    return profile.truth.decode_s(padded(decode), sms)


def _beside(
    profile: Profile, asked: Measure, prefill: PrefillShape, decode: DecodeShape
) -> tuple[float, tuple[float, ...]]:
    """One prefill, and the decode steps that began and ended while it ran."""
    device = Device(bytes_per_s=profile.device.bytes_per_s, contention_ratio=profile.contention_ratio)
    overheads = profile.overheads
    prefill_cost = profile.truth.prefill_cost(prefill, asked.prefill_sms)
    decode_cost = profile.truth.decode_cost(padded(decode), asked.decode_sms)
    solo_s = profile.truth.prefill_s(prefill, asked.prefill_sms)
    device.launch(device.prefill, solo_s=solo_s, sms=asked.prefill_sms, hbm_bytes=prefill_cost.hbm_bytes)
    step_s = decode_cost.seconds + overheads.graph_launch_s
    now_s, steps = 0.0, list[float]()
    while device.prefill.is_busy:
        device.launch(device.decode, solo_s=step_s, sms=asked.decode_sms, hbm_bytes=decode_cost.hbm_bytes)
        took_s = device.decode_done_in_s()
        prefill_left_s = device.prefill_done_in_s()
        if prefill_left_s < took_s:
            return now_s + prefill_left_s, tuple(steps)
        device.run(took_s + overheads.host_step_s)
        now_s += took_s + overheads.host_step_s
        steps.append(took_s + overheads.host_step_s)
    return now_s, tuple(steps)


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
    if asked.mode == "beside" and sms not in groups:
        return f"{sms[0]},{sms[1]} SMs are no partition group of the engine"
    tokens = prefill.new_tokens + prefill.reused_tokens + decode.reused_tokens + decode.bs
    if tokens > profile.kv_capacity_tokens:
        return f"the point needs {tokens} KV tokens; the engine holds {profile.kv_capacity_tokens}"
    return None
