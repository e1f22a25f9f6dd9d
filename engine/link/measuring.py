"""Measuring: the daemon asks an idle engine to run one point, and the engine says how long it took."""

from __future__ import annotations

from typing import Literal

import msgspec

MeasureMode = Literal["prefill", "decode", "colocated", "fused"]


class Measure(msgspec.Struct, frozen=True, kw_only=True, tag="measure"):
    """Run one batch, or a pair of them, `repeats` times. Answered by one Measured of the same `point_id`.

    `prefill`: all layers of a prefill alone on `prefill_sms`. `decode`: decode steps alone on `decode_sms`.
    `colocated`: decode steps on `decode_sms` while the prefill runs on `prefill_sms`, which together are a
    group of the engine's table. `fused`: one mixed batch on `prefill_sms`, which is `decode_sms`.
    """

    point_id: int
    mode: MeasureMode
    prefill_sms: int
    """0 if nothing is prefilled."""
    decode_sms: int
    """0 if nothing decodes."""
    prefill: tuple[tuple[int, int], ...]
    """(new_tokens, reused_tokens) per request."""
    decode: tuple[int, ...]
    """Context tokens per decoding request."""
    repeats: int
    """0: run it once and do not measure it, to warm up."""
    warm_s: float = 0.0
    """Device time for which the same work runs first, unmeasured and without a pause before what is measured:
    a GPU that is kept at work lowers its clocks to hold its power limit, as it does while it serves."""


class Measured(msgspec.Struct, frozen=True, kw_only=True, tag="measured"):
    """What a Measure found, or in `error` why it found nothing: the engine measures only while idle."""

    point_id: int
    prefill_s: tuple[float, ...] = ()
    """Whole prefills, one per repeat; in mode `colocated` slowed by decode."""
    decode_s: tuple[float, ...] = ()
    """Decode steps, host work included. `colocated`: only those with the prefill running from their start to
    their end. `fused`: the mixed batches."""
    launch_s: tuple[float, ...] = ()
    """What the host took to launch each repeat, where that is not part of its time: the repeats waited on the
    device until they were launched. Empty where launching is part of it."""
    is_host_bound: bool = False
    """Though they were to wait, the device came to the end of what was launched before the host did: the time
    has some of the host's in it."""
    gpu_clock_mhz: int | None = None
    """Clock of the SMs during the last repeat; None if the driver does not say."""
    gpu_power_w: float | None = None
    """What the GPU drew then, by the driver's average; None if it does not say."""
    error: str | None = None
