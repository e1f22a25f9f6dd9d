"""What steps and prefills took: the policy learns from it, and the daemon is told."""

from __future__ import annotations

from pdmuxd.engine.sglang.decode import Step, Taken
from pdmuxd.engine.sglang.prefill import LayerwiseBatch
from pdmuxd.engine.sglang.records import feedback, prefill_record, step_record
from pdmuxd.engine.sglang.reporting import Reporter
from pdmuxd.engine.sglang.steering import Steering


class Findings:
    """Of rank 0, whose device is the one that is measured."""

    def __init__(self, steering: Steering, reporter: Reporter) -> None:
        self._steering = steering
        self._reporter = reporter
        self.steps = 0
        """Records made since the start."""

    def stepped(self, step: Step, taken: Taken, now_s: float) -> None:
        """A decode or fused step was read."""
        self.steps += 1
        learned = feedback(step, taken)
        if learned is not None:
            self._steering.learn(learned)
        self._reporter.send_step(step_record(step, number=self.steps, now_s=now_s, taken=taken))

    def prefilled(self, batch: LayerwiseBatch, now_s: float) -> None:
        """A layer-wise prefill was finished. One of a single request says what its shape takes."""
        self.steps += 1
        shape, all_sms = batch.shape, self._steering.policy.table.rules.total_sms
        if shape.bs == 1 and batch.ran_alone and batch.sms == all_sms:
            self._steering.learn_prefill(shape.new_tokens, shape.reused_tokens, batch.device_s)
        self._reporter.send_step(prefill_record(batch, number=self.steps, now_s=now_s))
