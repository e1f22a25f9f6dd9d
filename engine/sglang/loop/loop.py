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

from pdmuxd.engine.sglang.decode import DecodeStage
from pdmuxd.engine.sglang.engine_info import EngineInfo
from pdmuxd.engine.sglang.loop.launches import Launches
from pdmuxd.engine.sglang.loop.planner import Planner
from pdmuxd.engine.sglang.loop.results import Results
from pdmuxd.engine.sglang.loop.step_feedback import StepFeedback
from pdmuxd.engine.sglang.loop.step_plan import StepPlan
from pdmuxd.engine.sglang.loop.view import View
from pdmuxd.engine.sglang.policy_runtime import PolicyRuntime
from pdmuxd.engine.sglang.port import EnginePort
from pdmuxd.engine.sglang.prefill import PrefillStage
from pdmuxd.engine.sglang.reporting import Counters, Reporter
from pdmuxd.engine.sglang.requests import Ledger
from pdmuxd.engine.sglang.streams.base import DeviceStreams

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
        engine_info: EngineInfo,
        policy_runtime: PolicyRuntime,
        reporter: Reporter,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._port = port
        self._engine_info = engine_info
        self._reporter = reporter
        self._clock = clock
        self._sleep = sleep
        self._start_s = clock()
        self.policy_runtime = policy_runtime
        self.ledger = Ledger(port.reused_tokens, reporter.send_request)
        self.prefill = prefill = PrefillStage(port, streams)
        self._streams = streams
        self._decode = decode = DecodeStage(port, streams)
        self._step_feedback = StepFeedback(policy_runtime, reporter)
        self._results = Results(
            state=port.state,
            decode=decode,
            prefill=prefill,
            ledger=self.ledger,
            step_feedback=self._step_feedback,
            now_s=self.now_s,
        )
        self._launches = Launches(
            port=port,
            decode=decode,
            prefill=prefill,
            ledger=self.ledger,
            policy_runtime=policy_runtime,
            now_s=self.now_s,
        )
        view = View(
            state=port.state,
            decode=decode,
            prefill=prefill,
            ledger=self.ledger,
            policy_runtime=policy_runtime,
            limits=engine_info.limits,
        )
        self._planner = Planner(
            view=view, ledger=self.ledger, policy_runtime=policy_runtime, layers=port.state.layers
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
        port, state = self._port, self._port.state
        port.take_input()
        if state.is_paused:
            return
        if state.is_first_rank:
            self._reporter.exchange(self)
        self._decode.settle()
        now_s = self.now_s()
        self.ledger.watch(state.waiting, now_s)
        if state.is_first_rank:
            done = self._results.notice()
            self._results.collect(done)
            point = self._reporter.next_point(self)
            plan = self._planner.plan(done, now_s) if point is None else StepPlan(done=done, measure=point)
            plan = port.agree(plan)
        else:
            plan = port.agree(None)
            self._results.collect(plan.done)
            self.ledger.look_up(plan.looked_up)
        if plan.measure is not None:
            self._reporter.measure(plan.measure)
        launched = self._launches.carry_out(plan)
        self._results.read(leaving=1 if launched else 0)
        if plan.decision is not None and plan.decision.blocking_merge:
            self.prefill.wait_for_last_layer()
        if not launched:
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

    def counters(self) -> Counters:
        """For the heartbeat."""
        state, group = self._port.state, self._streams.groups[self._port.stream_group]
        return Counters(
            total_sms=self._engine_info.device.total_sms,
            running=len(state.running),
            waiting=len(state.waiting),
            prefilling=sum(len(batch.batch.reqs) for batch in self.prefill.members())
            + (state.chunked_request is not None),
            kv_capacity_tokens=state.kv_capacity_tokens,
            kv_free_tokens=state.kv_free_tokens,
            cached_tokens=state.cached_tokens,
            steps=self._step_feedback.steps,
            switches=self._launches.switches,
            preemptions=self.prefill.preemptions,
            partition_id=self.policy_runtime.partition_id,
            prefill_sms=group.prefill_sms,
            decode_sms=group.decode_sms,
            busy_prefill_sm_s=self.prefill.busy_sm_s + self._decode.busy_prefill_sm_s,
            busy_decode_sm_s=self._decode.busy_decode_sm_s,
        )

    def _rest(self) -> None:
        """Nothing was launched beside which to look again."""
        if self.is_busy:
            self._sleep(POLL_S)
        else:
            self._port.idle()
            self._sleep(IDLE_S)
