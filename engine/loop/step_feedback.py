"""What steps and prefills took: the policy learns from it, and the daemon is told."""

from __future__ import annotations

from dataclasses import replace

from pdmuxd.engine.core.types import Mode
from pdmuxd.engine.link.messages import HOST_DELAY_S
from pdmuxd.engine.loop.decode import Step, StepTiming
from pdmuxd.engine.loop.engine_info import LoopReporter
from pdmuxd.engine.loop.host_time import cause_of
from pdmuxd.engine.loop.policy_runtime import PolicyRuntime
from pdmuxd.engine.loop.prefill import LayerwiseBatch
from pdmuxd.engine.loop.records import feedback
from pdmuxd.engine.loop.stalls import StallWatch


class StepFeedback:
    """Tells what rank 0 saw, whose device is the one that is measured."""

    def __init__(self, policy_runtime: PolicyRuntime, reporter: LoopReporter) -> None:
        self._policy_runtime = policy_runtime
        self._reporter = reporter
        self.steps = 0
        """Steps and prefills since the start."""
        self.stalls = 0
        """Steps that took far longer than expected."""
        self.host_delays = 0
        """Steps that were launched later than HOST_DELAY_S after the one before."""
        self._stall_watch = StallWatch()
        self._follows_split = False
        """Whether the step read last ran beside layers."""
        self._decode_sms = 0
        """Of the step read last."""

    def stepped(self, step: Step, timing: StepTiming, now_s: float) -> None:
        """A decode or fused step was read."""
        self.steps += 1
        learned = feedback(
            step, timing, self._policy_runtime.attainment_ratio, follows_split=self._follows_split
        )
        self._follows_split = step.decision.mode is Mode.SPLIT
        has_switched, self._decode_sms = step.decode_sms != self._decode_sms, step.decode_sms
        if learned is not None and step.decided_by is self._policy_runtime.policy:
            self._policy_runtime.learn(learned)
        context, sms = self._policy_runtime.policy.context, self._policy_runtime.engine.total_sms
        stall_s = self._stall_watch.excess_s(step, timing, context.latency, sms)
        if stall_s:
            self.stalls += 1
            cause = cause_of(step, timing, stall_s, has_switched=has_switched)
            timing = replace(timing, stall_s=stall_s, stall_cause=cause)
        self.host_delays += (timing.host_late_s or 0.0) > HOST_DELAY_S
        self._reporter.send_step(step, timing, number=self.steps, now_s=now_s)

    def prefilled(self, batch: LayerwiseBatch, now_s: float) -> None:
        """A layer-wise prefill was finished."""
        self.steps += 1
        self._policy_runtime.learn_prefill(batch)
        self._reporter.send_prefill(batch, number=self.steps, now_s=now_s)
