"""What the device is done with: tokens go to their requests, measurements to the step feedback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pdmuxd.engine.link.messages import StallCause
from pdmuxd.engine.loop.decode import DecodeStage
from pdmuxd.engine.loop.host_time import HostTime
from pdmuxd.engine.loop.port import EngineState
from pdmuxd.engine.loop.prefill import PrefillStage
from pdmuxd.engine.loop.requests import RequestBook
from pdmuxd.engine.loop.state import LoopState
from pdmuxd.engine.loop.step_feedback import StepFeedback
from pdmuxd.engine.loop.step_plan import Done


class Results:
    """Steps in the order of their launches, and prefills when they are done."""

    def __init__(
        self,
        *,
        state: EngineState,
        decode: DecodeStage,
        prefill: PrefillStage,
        ledger: RequestBook,
        step_feedback: StepFeedback,
        loop_state: LoopState,
        now_s: Callable[[], float],
        host_time: HostTime,
    ) -> None:
        self._state = state
        self._decode = decode
        self._prefill = prefill
        self._ledger = ledger
        self._step_feedback = step_feedback
        self._loop_state = loop_state
        self._now_s = now_s
        self._host_time = host_time
        self._held: list[Any] = []
        """Requests whose first token is held back."""

    def read(self, *, leaving: int) -> None:
        """Wait for steps, oldest first, until so many are left."""
        while len(self._decode) > leaving:
            self._decode.wait()
            self._host_time.passed()
            step = self._decode.read()
            now_s = self._now_s()
            self._loop_state.last_token_s = now_s
            self._ledger.give_step(step.launched.requests, now_s)
            if self._state.is_first_rank:
                self._step_feedback.stepped(step, self._decode.measure(step), now_s)
            self._release(now_s)
            self._host_time.passed(StallCause.RESULTS)

    def notice(self) -> Done:
        """What the device has finished of the prefills; never blocks."""
        self._prefill.collect()
        dropped = tuple(batch.batch_id for batch in self._prefill.abandoned())
        return Done(finish=self._prefill.is_done, dropped=dropped)

    def collect(self, done: Done) -> None:
        """Merge the finished prefill, end the abandoned ones."""
        if done.finish:
            self.finish_prefill()
        for batch in self._prefill.members():
            if batch.batch_id in done.dropped:
                self._prefill.drop(batch)
                self._ledger.give_tokens(batch.batch.reqs, self._now_s())

    def finish_prefill(self) -> None:
        """Merge the batch that ends next. What rank 0 saw done may have a moment left on another's device.

        Its requests are in the step after the one in flight, so their first tokens go out with those of the
        one in flight: the gap to the second is then one step and not up to two.
        """
        batch = self._prefill.wait_for_next()
        requests = batch.batch.reqs  # The merge takes those out that end with their first token.
        if not self._state.running:
            self._loop_state.last_token_s = self._now_s()
        hold = bool(len(self._decode))
        self._prefill.finish(hold=hold)
        self._held += requests
        if not hold:
            self._release(self._now_s())
        if self._state.is_first_rank:
            self._step_feedback.prefilled(batch, self._now_s())

    def _release(self, now_s: float) -> None:
        """First tokens that were held back."""
        if self._held:
            held, self._held = self._held, []
            self._prefill.release_tokens()
            self._ledger.give_tokens(held, now_s)
