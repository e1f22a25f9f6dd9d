"""What the loop is told of the engine that it runs, and what it tells of its work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from pdmuxd.engine.core.partitions import Partition
from pdmuxd.engine.core.policies.base import AnyPolicy
from pdmuxd.engine.core.types import EngineLimits, PrefillSample
from pdmuxd.engine.link.measuring import Measure
from pdmuxd.engine.link.predictors import Predictors
from pdmuxd.engine.loop.decode import Step, StepTiming
from pdmuxd.engine.loop.prefill import LayerwiseBatch

Splits = tuple[Partition, ...]


class EngineInfo(Protocol):
    """Which policies this engine can run, and what its measurements mean."""

    @property
    def limits(self) -> EngineLimits:
        """What it can hold."""

    @property
    def total_sms(self) -> int:
        """The SMs of the device."""

    def build(
        self,
        spec: str,
        predictors: Predictors | None,
        splits: Splits | None,
        delivery_s: float | None = None,
    ) -> tuple[AnyPolicy, tuple[int, ...]]:
        """A policy that chooses among `splits` or the engine's own, and the streams of its table's groups.

        `delivery_s`: by how much gaps are longer at clients, where it was measured.
        Raises: PolicyError, PartitionError, ProfileError.
        """

    def prefill_sample(self, batch: LayerwiseBatch) -> PrefillSample | None:
        """What a finished prefill says of a prefill of its shape, if anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """How the loop fares; counts and SM-seconds since the start, the rest of this moment."""

    total_sms: int
    running: int
    waiting: int
    prefilling: int
    kv_capacity_tokens: int
    kv_free_tokens: int
    cached_tokens: int
    steps: int
    stalls: int
    """Steps that took far longer than expected."""
    host_delays: int
    """Steps that the device waited for."""
    switches: int
    preemptions: int
    partition_id: int
    prefill_sms: int
    decode_sms: int
    busy_prefill_sm_s: float
    busy_decode_sm_s: float


class LoopReporter(Protocol):
    """What the loop tells of what it does. Nothing here blocks."""

    def exchange(self, loop: Any) -> None:
        """A safe point: take settings, tell how the loop fares."""

    def next_point(self, loop: Any) -> Measure | None:
        """A point to measure in this turn, or None."""

    def measure(self, point: Measure) -> None:
        """Measure it, on every rank."""

    def send_step(self, step: Step, timing: StepTiming, *, number: int, now_s: float) -> None:
        """A decode or fused step was read."""

    def send_prefill(self, batch: LayerwiseBatch, *, number: int, now_s: float) -> None:
        """A layer-wise prefill was finished."""
