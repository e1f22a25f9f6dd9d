"""What the device is done with: tokens go to their requests, measurements to the policy and the daemon."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from pdmuxd.engine.sglang.loop.turn import Turn
from pdmuxd.engine.sglang.port import EnginePort
from pdmuxd.engine.sglang.prefill import LayerwiseBatch, PrefillStage
from pdmuxd.engine.sglang.reporting import Reporter
from pdmuxd.engine.sglang.requests import Ledger
from pdmuxd.engine.sglang.steering import Steering
from pdmuxd.engine.sglang.steps import PendingStep, StepMeter


class Results:
    """Steps in the order of their launches, and prefills when they are done."""

    def __init__(
        self,
        *,
        port: EnginePort,
        stage: PrefillStage,
        ledger: Ledger,
        steering: Steering,
        reporter: Reporter,
        meter: StepMeter,
        now_s: Callable[[], float],
    ) -> None:
        self._port = port
        self._stage = stage
        self._ledger = ledger
        self._steering = steering
        self._reporter = reporter
        self._meter = meter
        self._now_s = now_s
        self._pending: deque[PendingStep] = deque()
        self.last_token_s = 0.0
        """When the decode batch last got tokens."""

    def __len__(self) -> int:
        """Steps that were not read."""
        return len(self._pending)

    def expect(self, step: PendingStep) -> None:
        """A step was launched."""
        self._pending.append(step)

    def read(self, *, leaving: int) -> None:
        """Wait for steps, oldest first, until so many are left."""
        while len(self._pending) > leaving:
            self._read()

    def collect(self, turn: Turn) -> None:
        """Merge the finished prefill, end the abandoned ones."""
        if turn.finish:
            self.finish_prefill()
        for batch in self._stage.members():
            if batch.batch_id in turn.dropped:
                self._stage.drop(batch)
                self._note_tokens(batch.batch.reqs)

    def finish_prefill(self) -> None:
        """Merge the running batch. What rank 0 saw finished may have a moment left on another's device."""
        running = self._stage.running
        requests = running.batch.reqs if running is not None else []
        if running is not None:
            self._stage.wait(running)
        if not self._port.state.running:
            self.last_token_s = self._now_s()
        batch = self._stage.finish()
        self._note_tokens(requests)
        if self._port.state.is_first_rank:
            self._learn(batch)
        self._reporter.send_step(self._meter.prefilled(batch, self._now_s(), self._port.state.layers))

    def _read(self) -> None:
        step = self._pending.popleft()
        self._port.decode.read(step.launched)
        now_s = self._now_s()
        self.last_token_s = now_s
        self._note_tokens(step.launched.requests)
        if self._port.state.is_first_rank:
            reading = self._meter.read(step, now_s)
            if reading.feedback is not None:
                self._steering.learn(reading.feedback)
            self._reporter.send_step(reading.record)

    def _learn(self, batch: LayerwiseBatch) -> None:
        """Only a batch of one request says what a request of its shape takes."""
        if (
            batch.shape.bs == 1
            and batch.ran_alone
            and batch.sms == self._steering.policy.table.rules.total_sms
        ):
            shape = batch.shape
            self._steering.learn_prefill(shape.new_tokens, shape.reused_tokens, batch.device_s)

    def _note_tokens(self, requests: Sequence[Any]) -> None:
        self._ledger.give_tokens(requests, self._now_s())
