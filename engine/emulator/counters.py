"""How an emulated engine, or a fleet of them, fares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCounters:
    """A snapshot. Token and event counts are totals since the start, the rest is of this moment."""

    elapsed_s: float
    policy: str
    settings_version: int
    running: int
    waiting: int
    prefilling: int
    kv_used_tokens: int
    kv_capacity_tokens: int
    cached_tokens: int
    prompt_tokens: int
    reused_tokens: int
    output_tokens: int
    steps: int
    stalls: int
    host_delays: int
    switches: int
    preemptions: int
    retractions: int
    partition_id: int
    prefill_sms: int
    decode_sms: int
    busy_prefill_sm_s: float
    busy_decode_sm_s: float


SUMMED = (
    "running",
    "waiting",
    "prefilling",
    "kv_used_tokens",
    "kv_capacity_tokens",
    "cached_tokens",
    "prompt_tokens",
    "reused_tokens",
    "output_tokens",
    "steps",
    "stalls",
    "host_delays",
    "switches",
    "preemptions",
    "retractions",
    "prefill_sms",
    "decode_sms",
    "busy_prefill_sm_s",
    "busy_decode_sm_s",
)


def summed(parts: Sequence[EngineCounters], *, policy: str, elapsed_s: float) -> EngineCounters:
    """The counters of several engines as if they were one; `group` is without meaning."""
    sums = {name: sum(getattr(part, name) for part in parts) for name in SUMMED}
    return replace(parts[0], policy=policy, elapsed_s=elapsed_s, partition_id=0, **sums)
