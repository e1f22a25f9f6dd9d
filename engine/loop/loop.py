"""The loop itself: the order of things in a turn.

A turn launches the next decode or fused step before it reads the result of the last one, so the device
is never without work while the host prepares more; a decision is therefore about the step after the
one in flight. Prefill layers go on the other stream beside it, and a finished prefill is noticed
by asking, never by waiting (query-based synchronisation, MuxWise 3.2.3).

With tensor parallelism rank 0 alone looks at clocks, events and policies; the others get its `StepPlan` and
carry out the same launches in the same order. A look into the prefix cache changes it (which entries were
used last, where its tree branches, and so what is evicted), so every rank takes the same ones in the same
order: the ledger is kept on all of them.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

from pdmuxd.engine.core.observing import Hidden
from pdmuxd.engine.link.messages import StallCause
from pdmuxd.engine.loop.decode import DecodeStage
from pdmuxd.engine.loop.decode_turns import DecodeTurns
from pdmuxd.engine.loop.engine_info import Counters, LoopReporter
from pdmuxd.engine.loop.host_time import HostTime
from pdmuxd.engine.loop.launches import Launches
from pdmuxd.engine.loop.planner import Planner
from pdmuxd.engine.loop.policy_runtime import PolicyRuntime
from pdmuxd.engine.loop.port import EnginePort
from pdmuxd.engine.loop.prefill import PrefillStage
from pdmuxd.engine.loop.requests import RequestBook
from pdmuxd.engine.loop.results import Results
from pdmuxd.engine.loop.step_feedback import StepFeedback
from pdmuxd.engine.loop.step_plan import StepPlan
from pdmuxd.engine.loop.streams import DeviceStreams
from pdmuxd.engine.loop.view import View

POLL_S = 0.0001
"""Between two looks at a prefill that runs alone."""
IDLE_S = 0.0005
"""Between two looks for requests when there are none."""


class EngineLoop:
    """One per scheduler process; not thread-safe."""

    def __init__(
        self,
        *,
        port: EnginePort,
        streams: DeviceStreams,
        policy_runtime: PolicyRuntime,
        ledger: RequestBook,
        reporter: LoopReporter,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
        collected_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._port = port
        self._reporter = reporter
        self._clock = clock
        self._sleep = sleep
        self._start_s = clock()
        self._host_time = HostTime(clock, collected_s)
        self.policy_runtime = policy_runtime
        self.state = policy_runtime.state
        self.ledger = ledger
        self._has_launched = False
        """Whether this turn launched a step."""
        self._merges = False
        """Whether it waits for the prefill as well: an ablation of asking."""
        self.wake_at_s: float | None = None
        """Until when requests are held back on purpose."""
        self.prefill = prefill = PrefillStage(
            port, streams, max_set_aside=policy_runtime.engine.limits.max_set_aside
        )
        self._streams = streams
        self._decode = decode = DecodeStage(port, streams)
        self._step_feedback = StepFeedback(policy_runtime, reporter)
        self._results = Results(
            state=port.state,
            decode=decode,
            prefill=prefill,
            ledger=self.ledger,
            step_feedback=self._step_feedback,
            loop_state=self.state,
            now_s=self.now_s,
            host_time=self._host_time,
        )
        self._launches = Launches(
            port=port,
            decode=decode,
            prefill=prefill,
            ledger=self.ledger,
            policy_runtime=policy_runtime,
            now_s=self.now_s,
        )
        turns = DecodeTurns(port.state, self.ledger)
        self._view = View(
            state=port.state,
            turns=turns,
            decode=decode,
            prefill=prefill,
            ledger=self.ledger,
            policy_runtime=policy_runtime,
            limits=policy_runtime.engine.limits,
        )
        self._planner = Planner(
            view=self._view,
            turns=turns,
            ledger=self.ledger,
            policy_runtime=policy_runtime,
            layers=port.state.layers,
            waits_for_device=port.prefill.waits_for_device,
        )

    def now_s(self) -> float:
        """Seconds since the loop was made."""
        return self._clock() - self._start_s

    def run(self) -> None:
        """Turn until SGLang asks to stop."""
        # What the start has made stays. A full collection that looked through it (800,000 objects) would
        # stop every token for up to a second.
        gc.collect()
        gc.freeze()
        while not self._port.state.is_stopping:
            self.turn()

    def turn(self) -> None:
        """One safe point and what follows from it."""
        if self.launch():
            self.read()

    def launch(self) -> bool:
        """The first half of a turn: look, decide, launch. False if paused: there is no other."""
        port, state = self._port, self._port.state
        host_time = self._host_time
        host_time.passed()
        port.take_input()
        if state.is_paused:
            return False
        if state.is_first_rank:
            self._reporter.exchange(self)
        host_time.passed(StallCause.INPUT)
        self._decode.settle()
        now_s = self.now_s()
        self.ledger.watch(state.waiting, now_s)
        if state.is_first_rank:
            done = self._results.notice()
            self._results.collect(done)
            host_time.passed(StallCause.RESULTS)
            point = self._reporter.next_point(self)
            plan = self._planner.plan(done, now_s) if point is None else StepPlan(done=done, measure=point)
            plan = port.agree(plan)
        else:
            plan = port.agree(None)
            self._results.collect(plan.done)
            self.ledger.look_up(plan.looked_up)
        host_time.passed(StallCause.DECISION)
        if plan.measure is not None:
            self._reporter.measure(plan.measure)
        self._has_launched = self._launches.carry_out(plan)
        host_time.passed(StallCause.LAUNCH)
        step = self._decode.in_flight
        if self._has_launched and step is not None:
            step.host_s = host_time.launched()
        self._merges = plan.decision is not None and plan.decision.blocking_merge
        self.wake_at_s = plan.decision.wake_at_s if plan.decision is not None else None
        return True

    @property
    def next_read(self) -> Any:
        """The event that `read` would wait for, or None if it would not wait."""
        awaited = [self._decode.next_end] if len(self._decode) > self._has_launched else []
        if self._merges:
            awaited.append(self.prefill.last_layer_end)
        return next((e for e in awaited if e is not None and not self._streams.is_done(e)), None)

    @property
    def goes_on(self) -> bool:
        """Whether this turn launched a step, or there is one to read."""
        return self._has_launched or len(self._decode) > 0

    def read(self) -> None:
        """The other half: wait for what the turn before has launched, or rest if nothing was launched."""
        self._results.read(leaving=1 if self._has_launched else 0)
        if self._merges:
            self.prefill.wait_for_last_layer()
        if not self._has_launched:
            self._rest()

    def drain(self) -> None:
        """Finish everything on the device; used before SGLang pauses or releases memory.

        SGLang looks for the result of its last batch when it pauses: none is left, and so no last batch.
        """
        self._results.read(leaving=0)
        while self.prefill.members():
            self.prefill.launch_rest()
            self._results.finish_prefill()
        self._decode.settle()
        self._decode.nothing_launched()

    @property
    def is_busy(self) -> bool:
        """Whether anything of ours is on the device or holds KV."""
        return bool(len(self._decode) or self.prefill.members())

    @property
    def is_idle(self) -> bool:
        """Whether no request runs, waits or is on the device."""
        state = self._port.state
        return not (self.is_busy or len(state.running) or len(state.waiting))

    def counters(self) -> Counters:
        """Counters for the heartbeat."""
        state, group = self._port.state, self._streams.groups[self._port.stream_group]
        return Counters(
            total_sms=self.policy_runtime.engine.total_sms,
            running=len(state.running),
            waiting=len(state.waiting),
            prefilling=sum(len(batch.batch.reqs) for batch in self.prefill.members())
            + (state.chunked_request is not None),
            kv_capacity_tokens=state.kv_capacity_tokens,
            kv_free_tokens=state.kv_free_tokens,
            cached_tokens=state.cached_tokens,
            steps=self._step_feedback.steps,
            stalls=self._step_feedback.stalls,
            host_delays=self._step_feedback.host_delays,
            switches=self._launches.switches,
            preemptions=self.prefill.preemptions,
            partition_id=self.state.partition_id,
            prefill_sms=group.prefill_sms,
            decode_sms=group.decode_sms,
            busy_prefill_sm_s=self.prefill.busy_sm_s + self._decode.busy_prefill_sm_s,
            busy_decode_sm_s=self._decode.busy_decode_sm_s,
        )

    def hidden(self) -> Hidden:
        """Requests that wait and are not shown to the policy, by reason. Nothing is changed by asking."""
        return self._view.hidden()

    def _rest(self) -> None:
        """Nothing was launched beside which to look again."""
        if self.is_busy:
            self._sleep(POLL_S)
        else:
            self._port.idle()
            self._sleep(IDLE_S)
