"""What steps and prefills took: the policy learns from it, and the daemon is told."""

from __future__ import annotations

from pdmuxd.engine.sglang.decode import Step, StepTiming
from pdmuxd.engine.sglang.policy_runtime import PolicyRuntime
from pdmuxd.engine.sglang.prefill import LayerwiseBatch
from pdmuxd.engine.sglang.records import feedback, prefill_record, step_record
from pdmuxd.engine.sglang.reporting import Reporter


class StepFeedback:
    """Of rank 0, whose device is the one that is measured."""

    def __init__(self, policy_runtime: PolicyRuntime, reporter: Reporter) -> None:
        self._policy_runtime = policy_runtime
        self._reporter = reporter
        self.steps = 0
        """Records made since the start."""

    def stepped(self, step: Step, timing: StepTiming, now_s: float) -> None:
        """A decode or fused step was read."""
        self.steps += 1
        learned = feedback(step, timing)
        if learned is not None:
            self._policy_runtime.learn(learned)
        self._reporter.send_step(step_record(step, number=self.steps, now_s=now_s, timing=timing))

    def prefilled(self, batch: LayerwiseBatch, now_s: float) -> None:
        """A layer-wise prefill was finished. One of a single request says what its shape takes."""
        self.steps += 1
        shape, all_sms = batch.shape, self._policy_runtime.policy.table.rules.total_sms
        if shape.bs == 1 and batch.ran_alone and batch.sms == all_sms:
            self._policy_runtime.learn_prefill(shape.new_tokens, shape.reused_tokens, batch.device_s)
        self._reporter.send_step(prefill_record(batch, number=self.steps, now_s=now_s))
