"""The host thread of the emulated engine: it launches work, sleeps until the device is done, and decides.

At a safe point it collects what the device finished, shows the policy an observation and carries out the
decision: decode first, then prefill layers, or one fused batch. Prefill that finishes while decode
runs is merged at the next safe point, without blocking (query-based synchronisation, MuxWise 3.2.3).
One file, though a long one: the order of launching, waiting and merging is one story.
"""

from __future__ import annotations

import math
from enum import StrEnum

from pdmuxd.engine.core.errors import EngineInvariantError
from pdmuxd.engine.core.types import (
    NO_DECODE,
    Decision,
    Feedback,
    PrefillMode,
    PrefillShape,
)
from pdmuxd.engine.emulator.graphs import padded
from pdmuxd.engine.emulator.machine import Machine
from pdmuxd.engine.emulator.telemetry import Step


class Wait(StrEnum):
    """What the host sleeps on."""

    NOTHING = "nothing"
    ALARM = "alarm"
    TURN = "turn"
    DECODE = "decode"
    FUSED = "fused"
    PREFILL = "prefill"


class Host:
    """Carries out decisions on a machine."""

    def __init__(self, machine: Machine) -> None:
        self._m = machine
        self._wait = Wait.NOTHING
        self._turn_s = math.inf
        self._free_s = 0.0
        """When the CPU is done with launching."""
        self._step: Step | None = None
        self._measures_prefill = False
        """Whether the step in progress is nothing but layers of one prefill."""

    def wake(self) -> None:
        """Something changed; an idle host looks at once, a busy one at its next safe point."""
        if self._wait in (Wait.NOTHING, Wait.ALARM):
            self._turn_at(self._m.now_s)

    def next_event_s(self) -> float:
        """When the host acts next; infinity while it is idle."""
        now_s, device = self._m.now_s, self._m.device
        if self._wait in (Wait.TURN, Wait.ALARM):
            return max(self._turn_s, now_s)
        if self._wait is Wait.PREFILL:
            return max(now_s + device.prefill_done_in_s(), self._free_s)
        if self._wait in (Wait.DECODE, Wait.FUSED):
            return now_s + device.decode_done_in_s()
        return math.inf

    def handle(self) -> None:
        """The event that `next_event_s` announced has come."""
        if self._wait in (Wait.TURN, Wait.ALARM, Wait.PREFILL):
            self._turn()
        elif self._wait is Wait.FUSED:
            self._fused_done()
        elif self._wait is Wait.DECODE:
            self._decode_done()

    # --- what the device finished

    def _decode_done(self) -> None:
        m, step = self._m, self._step
        m.give_decode_tokens()
        if step is None:
            raise EngineInvariantError("a decode step ended that was not launched")
        step.decode_steps_left -= 1
        if step.decode_steps_left and m.decode.members:
            self._launch_decode(step, ahead=True)
            return
        host_s = m.profile.overheads.host_step_s
        each_s = (m.now_s - step.start_s) / step.decision.decode_steps + host_s
        step.measured_decode_s = each_s
        self._learn(step, step.decision.numbers.predicted_decode_s, each_s)
        if step.decision.blocking_merge and m.device.prefill.is_busy:
            self._free_s = max(self._free_s, m.now_s + host_s)
            self._wait = Wait.PREFILL
            return
        self._turn_at(max(m.now_s + host_s, self._free_s))

    def _fused_done(self) -> None:
        m = self._m
        if m.decode.in_flight:
            m.give_decode_tokens()
        m.merge_prefill(is_chunk=True)
        if self._step is not None:
            self._learn(
                self._step, self._step.decision.numbers.predicted_fused_s, m.now_s - self._step.start_s
            )
        self._turn_at(m.now_s)

    def _learn(self, step: Step, predicted_s: float | None, measured_s: float) -> None:
        """Tell the policy what a predicted step took."""
        m = self._m
        if step.prefill_shape is None or predicted_s is None:
            return
        feedback = Feedback(
            mode=step.decision.mode,
            partition_id=step.decision.partition_id,
            prefill=step.prefill_shape,
            decode=step.decode,
            predicted_s=predicted_s,
            measured_s=measured_s,
        )
        m.state = m.policy.learn(feedback, m.state)

    # --- the safe point

    def _turn(self) -> None:
        m = self._m
        self._end_step()
        if m.prefill.chunks and not m.device.prefill.is_busy:
            m.merge_prefill(is_chunk=True)
        elif m.prefill.is_done:
            m.merge_prefill(is_chunk=False)
        m.swap_policy()
        decision, state = m.policy.decide(m.observe(), m.state)
        if decision.admit and m.refresh(decision.admit):
            # What they share with the cache came or went while they waited: decide on what is true now.
            decision, state = m.policy.decide(m.observe(), m.state)
        m.state = state
        if decision.deprioritize:
            m.queue.deprioritize(decision.deprioritize)
        if decision.mode.is_one_batch:
            self._fuse(decision)
        else:
            self._split(decision)

    def _split(self, decision: Decision) -> None:
        m, overheads = self._m, self._m.profile.overheads
        switch_s = self._switch(decision)
        retractions = m.totals.retractions
        chunk = self._stage_prefill(decision)
        running = m.prefill.running
        colocated = chunk or (running.shape if running is not None else None)
        launch_s = switch_s
        was_empty = not m.device.prefill.is_busy
        if decision.decode_steps and m.decode.members:
            self._begin(decision, colocated)
            launch_s += overheads.graph_launch_s
        self._free_s = m.now_s + launch_s + self._launch_prefill(decision, chunk)
        if m.decode.in_flight and self._step is not None:
            self._launch_decode(self._step, extra_s=switch_s)
        elif m.device.prefill.is_busy:
            self._begin(decision, colocated=running.shape if running is not None else None)
            self._measures_prefill = was_empty and running is not None and running.graph_shape is None
            self._wait = Wait.PREFILL
        elif m.totals.retractions > retractions:
            self._turn_at(m.now_s + overheads.host_step_s)
        else:
            self._idle(decision)

    def _stage_prefill(self, decision: Decision) -> PrefillShape | None:
        """Preempt, resume and admit as decided; returns the chunk to launch, if one was asked for."""
        m, stage = self._m, self._m.prefill
        if decision.preempt:
            stage.preempt()
            m.totals.preemptions += 1
        if decision.resume:
            stage.resume()
        if decision.token_budget:
            if m.device.prefill.is_busy:
                raise EngineInvariantError("a chunk was decided while the prefill stream is busy")
            return stage.fill(decision.admit, decision.token_budget, m.now_s, decision.prefill_graph)
        if decision.admit:
            members = [a for a in (stage.admit(i, m.now_s) for i in decision.admit) if a is not None]
            if members:
                stage.start(members, PrefillMode.LAYERWISE, decision.prefill_graph)
            elif decision.preempt:
                stage.resume()
        return None

    def _launch_prefill(self, decision: Decision, chunk: PrefillShape | None) -> float:
        """Launch the chunk, or layers of the running batch. Returns the CPU's time for it in seconds."""
        m, overheads = self._m, self._m.profile.overheads
        sms = m.policy.table.groups[m.partition_id].prefill_sms
        if chunk is not None:
            if not chunk.new_tokens:
                return 0.0
            captured = m.prefill.chunk_graph_shape
            cost = m.profile.truth.prefill_cost(captured or chunk, sms)
            solo_s = m.profile.truth.prefill_s(chunk, sms)
            if captured is not None:
                solo_s = cost.seconds + overheads.graph_launch_s
            m.device.launch(m.device.prefill, solo_s=solo_s, sms=sms, hbm_bytes=cost.hbm_bytes)
            is_graph, layers = captured is not None, m.profile.model.layers
        else:
            running, layers = m.prefill.running, self._layers(decision)
            is_graph = running is not None and running.graph_shape is not None
            if layers:
                m.prefill.launch_layers(layers, sms)
        if is_graph:
            return overheads.graph_launch_s if layers else 0.0
        return overheads.layer_launch_s * layers

    def _layers(self, decision: Decision) -> int:
        running = self._m.prefill.running
        if running is None:
            return 0
        return min(decision.prefill_layers, self._m.profile.model.layers - running.layers_launched)

    def _fuse(self, decision: Decision) -> None:
        m, stage = self._m, self._m.prefill
        if stage.running is not None and stage.running.mode is PrefillMode.LAYERWISE:
            raise EngineInvariantError("a fused step was decided while a layer-wise prefill is under way")
        if m.device.prefill.is_busy:
            raise EngineInvariantError("a fused step was decided while the prefill stream is busy")
        switch_s = self._switch(decision)
        decodes = decision.decode_steps > 0 and bool(m.decode.members)
        if decodes:
            m.make_room()
        decode = m.decode.shape if m.decode.in_flight else NO_DECODE
        budget = decision.token_budget - decode.bs
        prefill = stage.fill(decision.admit, budget, m.now_s, decision.prefill_graph)
        if not decode.bs and not prefill.new_tokens and m.decode.members:
            m.make_room()  # the admission did not fit after all: decode rather than idle
            decode = m.decode.shape
        if not decode.bs and not prefill.new_tokens:
            self._idle(decision)
            return
        total_sms, truth, overheads = m.profile.device.total_sms, m.profile.truth, m.profile.overheads
        graph = padded(decode) if not prefill.new_tokens else decode
        captured = stage.chunk_graph_shape
        cost = truth.fused_cost(captured or prefill, graph, total_sms)
        solo_s = truth.fused_s(prefill, graph, total_sms) + switch_s
        if captured is not None:
            solo_s = cost.seconds + overheads.graph_launch_s + switch_s
        if prefill.new_tokens:
            alone_s = truth.prefill_cost(prefill, total_sms).seconds
            share = alone_s / (alone_s + truth.decode_cost(decode, total_sms).seconds)
            m.totals.fused_prefill_sm_s += share * solo_s * total_sms
        self._step = Step(
            decision=decision,
            start_s=m.now_s,
            partition=m.policy.table.groups[m.partition_id],
            decode=decode,
            prefill_new_tokens=prefill.new_tokens,
            prefill_shape=prefill,
        )
        m.device.launch(m.device.decode, solo_s=solo_s, sms=total_sms, hbm_bytes=cost.hbm_bytes)
        self._free_s = m.now_s + overheads.graph_launch_s
        self._wait = Wait.FUSED

    # --- launching

    def _switch(self, decision: Decision) -> float:
        """Change the group; only with both streams drained (invariant 2). Returns what it costs."""
        m = self._m
        if decision.partition_id == m.partition_id:
            return 0.0
        if m.device.prefill.is_busy or m.device.decode.is_busy:
            raise EngineInvariantError("a group switch was decided while a stream is busy")
        m.partition_id = decision.partition_id
        m.totals.switches += 1
        return m.profile.overheads.switch_s

    def _begin(self, decision: Decision, colocated: PrefillShape | None) -> None:
        m = self._m
        running = m.prefill.running
        if decision.decode_steps and m.decode.members:
            m.make_room()
        self._step = Step(
            decision=decision,
            start_s=m.now_s,
            partition=m.policy.table.groups[m.partition_id],
            decode=m.decode.shape if m.decode.in_flight else NO_DECODE,
            prefill_new_tokens=running.shape.new_tokens if running is not None else 0,
            decode_steps_left=decision.decode_steps,
            prefill_shape=colocated,
        )

    def _launch_decode(self, step: Step, *, ahead: bool = False, extra_s: float = 0.0) -> None:
        """One decode step on its partition; a step launched ahead pays no launch of its own."""
        m = self._m
        if ahead:
            m.make_room()
        sms = step.partition.decode_sms
        if sms <= 0:
            raise EngineInvariantError("decode was launched on a group without decode SMs")
        cost = m.profile.truth.decode_cost(padded(m.decode.shape), sms)
        launch_s = 0.0 if ahead else m.profile.overheads.graph_launch_s + extra_s
        m.device.launch(m.device.decode, solo_s=cost.seconds + launch_s, sms=sms, hbm_bytes=cost.hbm_bytes)
        self._wait = Wait.DECODE

    def _idle(self, decision: Decision) -> None:
        """Nothing is on the device; requests that still wait must be held back on purpose."""
        m = self._m
        self._step = None
        self._wait = Wait.NOTHING
        if m.next_policy is not None:
            if not (m.prefill.running or m.prefill.preempted):
                self._turn_at(m.now_s)
        elif decision.wake_at_s is not None and decision.wake_at_s > m.now_s:
            self._turn_at(decision.wake_at_s)
            self._wait = Wait.ALARM
        elif len(m.queue) or m.decode.members or m.prefill.members():
            raise EngineInvariantError("the policy left the device idle while requests wait")

    def _end_step(self) -> None:
        if self._step is not None:
            if self._measures_prefill:
                self._step.prefill_only_s = self._m.now_s - self._step.start_s
            self._m.end_step(self._step)
            self._step = None
        self._measures_prefill = False

    def _turn_at(self, at_s: float) -> None:
        self._wait = Wait.TURN
        self._turn_s = at_s
