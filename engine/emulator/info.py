"""What the loop is told about the emulated engine, and whom it tells about its work."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from pdmuxd.engine.core.errors import EngineInvariantError
from pdmuxd.engine.core.policies.base import AnyPolicy
from pdmuxd.engine.core.policies.registry import build_policy
from pdmuxd.engine.core.types import EngineLimits, PrefillSample
from pdmuxd.engine.emulator.observer import EngineObserver
from pdmuxd.engine.emulator.profile import Profile
from pdmuxd.engine.emulator.streams import EmulatedStreams
from pdmuxd.engine.link.measuring import Measure
from pdmuxd.engine.link.messages import IterationRecord
from pdmuxd.engine.link.predictors import Predictors
from pdmuxd.engine.loop.decode import Step, StepTiming
from pdmuxd.engine.loop.engine_info import Splits
from pdmuxd.engine.loop.prefill import LayerwiseBatch
from pdmuxd.engine.loop.records import prefill_record, step_record

MAX_RECORDS = 50_000


class EmulatedInfo:
    """Implements EngineInfo: any policy, on any split that the device can make."""

    def __init__(self, profile: Profile, limits: EngineLimits, streams: EmulatedStreams) -> None:
        self.limits = limits
        self.total_sms = profile.device.total_sms
        self._profile = profile
        self._streams = streams

    def build(
        self,
        spec: str,
        predictors: Predictors | None,
        splits: Splits | None,
        delivery_s: float | None = None,
    ) -> tuple[AnyPolicy, tuple[int, ...]]:
        """The policy and the streams of its groups. Raises: PolicyError, PartitionError, ProfileError."""
        context = self._profile.policy_context if predictors is None else self._profile.context(predictors)
        if splits is not None:
            context = replace(context, splits=splits)
        policy = build_policy(spec, context.delivering(delivery_s))
        return policy, self._streams.made_for(policy.table)

    def prefill_sample(self, batch: LayerwiseBatch) -> PrefillSample | None:
        """A sample of a prefill of one request, or of a graph of equal ones, that ran alone on all SMs."""
        captured = batch.batch.graph_shape
        if not batch.ran_alone or batch.sms != self.total_sms or (batch.shape.bs != 1 and captured is None):
            return None
        new_tokens = batch.entries[0].new_tokens if captured is None else captured.new_tokens // captured.bs
        return self._profile.truth.prefill_terms(new_tokens, batch.shape.reused_tokens // batch.shape.bs)


class EmulatedReporter:
    """Implements LoopReporter: an observer hears of each step, and records are kept if they are asked for.

    Settings and measurements come from the engine's owner, not from here.
    """

    def __init__(self, observer: EngineObserver, *, keeps_records: bool) -> None:
        self.records: deque[IterationRecord] | None = deque() if keeps_records else None
        self.dropped_records = 0
        self._observer = observer

    def exchange(self, loop: object) -> None:
        """Nobody is asked."""

    def next_point(self, loop: object) -> Measure | None:
        """Nothing is measured by the loop."""

    def measure(self, point: Measure) -> None:
        """Raises: EngineInvariantError, as nothing is measured by the loop."""
        raise EngineInvariantError(f"point {point.point_id} was to be measured by the emulated loop")

    def send_step(self, step: Step, timing: StepTiming, *, number: int, now_s: float) -> None:
        """A decode or fused step was read."""
        self._observer.on_step(step.decision, now_s - timing.gap_s, now_s)
        if self.records is not None:
            self._keep(step_record(step, number=number, now_s=now_s, timing=timing))

    def send_prefill(self, batch: LayerwiseBatch, *, number: int, now_s: float) -> None:
        """A prefill was finished; what of it ran with no step is work of its own."""
        if batch.alone_decision is not None:
            self._observer.on_step(batch.alone_decision, now_s - batch.alone_s, now_s)
        if self.records is not None:
            self._keep(prefill_record(batch, number=number, now_s=now_s))

    def _keep(self, record: IterationRecord) -> None:
        if self.records is None:
            return
        if len(self.records) == MAX_RECORDS:
            self.records.popleft()
            self.dropped_records += 1
        self.records.append(record)
