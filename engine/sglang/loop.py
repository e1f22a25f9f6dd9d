"""The scheduler's loop: at each safe point look, decide, launch, and read what was launched before.

A turn launches the next decode or fused step before it reads the result of the last one, so the device
is never without work while the host prepares more; a decision is therefore about the step after the
one in flight. Prefill layers go on the other stream beside it, and a finished prefill is noticed
by asking, never by waiting (query-based synchronisation, MuxWise 3.2.3).

With tensor parallelism rank 0 alone looks at clocks, events and policies; the others get its `Turn` and
carry out the same launches in the same order. A look into the prefix cache changes it (which entries were
used last, where its tree branches, and so what is evicted), so every rank takes the same ones in the same
order: the ledger is kept on all of them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pdmuxd.engine.core.errors import EngineInvariantError
from pdmuxd.engine.core.fusing import chunk_lengths
from pdmuxd.engine.core.types import (
    Decision,
    Mode,
    Observation,
    PrefillMode,
    PrefillShape,
    PrefillView,
)
from pdmuxd.engine.sglang.facts import EngineFacts
from pdmuxd.engine.sglang.port import EnginePort, LaunchedStep
from pdmuxd.engine.sglang.prefill import PrefillStage
from pdmuxd.engine.sglang.reporting import Reporter
from pdmuxd.engine.sglang.requests import Ledger
from pdmuxd.engine.sglang.steering import Steering
from pdmuxd.engine.sglang.steps import Counters, PendingStep, StepMeter
from pdmuxd.engine.sglang.streams.base import DeviceStreams

POLL_S = 0.0001
"""Between two looks at a prefill that runs alone."""
IDLE_S = 0.0005
"""Between two looks for requests when there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Rank 0's plan of one turn; the same on every rank (invariant 6)."""

    finish: bool
    """The running prefill has passed its last layer."""
    dropped: tuple[int, ...]
    """Batch ids of abandoned prefills; one that is finished ends that way."""
    looked_up: tuple[str, ...] = ()
    """Waiting requests that were looked up in the prefix cache once more."""
    decision: Decision | None = None
    stream_group: int = 0


class EngineLoop:
    """One per scheduler process; not thread-safe."""

    def __init__(
        self,
        *,
        port: EnginePort,
        streams: DeviceStreams,
        facts: EngineFacts,
        steering: Steering,
        reporter: Reporter,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._port = port
        self._streams = streams
        self._facts = facts
        self.steering = steering
        self._reporter = reporter
        self._clock = clock
        self._sleep = sleep
        self._start_s = clock()
        self.ledger = Ledger(port.reused_tokens, reporter.send_request)
        self.stage = PrefillStage(port, streams)
        self._meter = StepMeter(streams)
        self._pending: deque[PendingStep] = deque()
        self._turns = 0
        self._group = steering.policy.table.PREFILL_ONLY
        """Index into the policy's table of the group in force."""
        self._last_token_s = 0.0
        self._launched_last_turn = False

    def now_s(self) -> float:
        """Seconds since the loop was made."""
        return self._clock() - self._start_s

    def run(self) -> None:
        """Turn until SGLang asks to stop."""
        while not self._port.is_stopping:
            self.turn()

    def turn(self) -> None:
        """One safe point and what follows from it."""
        port = self._port
        self._turns += 1
        port.take_input()
        if port.is_paused:
            return
        if port.is_first_rank:
            self._reporter.exchange(self)
        port.settle()
        now_s = self.now_s()
        self.ledger.watch(port.waiting, now_s)
        turn = port.agree(self._plan(now_s) if port.is_first_rank else None)
        if not port.is_first_rank:
            self._collect(turn)
            self._look_up(turn.looked_up)
        self._carry_out(turn)

    def drain(self) -> None:
        """Finish everything on the device; used before SGLang pauses or releases memory.

        SGLang looks for the result of its last batch when it pauses: none is left, and so no last batch.
        """
        while self._pending:
            self._read()
        while self.stage.members():
            if self.stage.running is None:
                self.stage.resume()
            running = self.stage.running
            left = self._port.layers - (running.layers_launched if running is not None else 0)
            if left:
                sms = self._streams.groups[self._port.stream_group].prefill_sms
                self.stage.launch(left, sms, self._turns)
            self._finish_prefill()
        self._port.settle()
        self._port.nothing_launched()
        self._launched_last_turn = False

    def counters(self) -> Counters:
        """For the heartbeat."""
        port, (prefill_sms, decode_sms) = self._port, self._groups_sms()
        return Counters(
            total_sms=self._facts.device.total_sms,
            running=len(port.running),
            waiting=len(port.waiting),
            prefilling=sum(len(batch.batch.reqs) for batch in self.stage.members())
            + (port.chunked_request is not None),
            kv_capacity_tokens=port.kv_capacity_tokens,
            kv_free_tokens=port.kv_free_tokens,
            cached_tokens=port.cached_tokens,
            steps=self._meter.steps,
            switches=self._meter.switches,
            preemptions=self._meter.preemptions,
            group=self._group,
            prefill_sms=prefill_sms,
            decode_sms=decode_sms,
            busy_prefill_sm_s=self.stage.busy_sm_s + self._meter.busy_fused_prefill_sm_s,
            busy_decode_sm_s=self._meter.busy_decode_sm_s,
        )

    @property
    def is_busy(self) -> bool:
        """Whether anything of ours is on the device or holds KV."""
        return bool(self._pending or self.stage.members())

    # --- look and decide (rank 0)

    def _plan(self, now_s: float) -> Turn:
        port, stage, steering = self._port, self.stage, self.steering
        stage.collect()
        finish = stage.is_done
        dropped = tuple(batch.batch_id for batch in stage.abandoned())
        self._collect(Turn(finish=finish, dropped=dropped))
        if steering.is_changing and not stage.members() and port.chunked_request is None:
            steering.change()
            self._group = steering.policy.table.PREFILL_ONLY
        if not self._has_work():
            return Turn(finish=finish, dropped=dropped)
        decision = steering.decide(self._observe(now_s))
        looked_up = decision.admit
        if self._look_up(looked_up):
            # What they share with the cache came or went while they waited: decide on what is true now.
            decision = steering.decide(self._observe(now_s))
        if decision.demote:
            self.ledger.demote(decision.demote)
        return Turn(
            finish=finish,
            dropped=dropped,
            looked_up=looked_up,
            decision=decision,
            stream_group=self._stream_group(decision),
        )

    def _has_work(self) -> bool:
        port = self._port
        return bool(port.waiting or port.running or port.chunked_request is not None or self.stage.members())

    def _stream_group(self, decision: Decision) -> int:
        """Fused steps and decode by itself run on all SMs, on the decode stream of the last group."""
        if decision.mode is Mode.FUSED:
            return self._facts.table.decode_only
        if decision.mode is Mode.IDLE:
            return self._port.stream_group
        return self.steering.groups[decision.group]

    def _look_up(self, request_ids: tuple[str, ...]) -> bool:
        """Look into the prefix cache once more; whether one of them looks different now."""
        known = [self.ledger.get(request_id) for request_id in request_ids]
        changed = [self.ledger.refresh(tracked) for tracked in known if tracked is not None]
        return any(changed)

    def _observe(self, now_s: float) -> Observation:
        port, stage = self._port, self.stage
        hidden = self.steering.is_changing
        assumed_done = self._turns - 1 if self._launched_last_turn else -1
        return Observation(
            now_s=now_s,
            group=self._group,
            decode=port.decode_shape(),
            tbt_target_s=self.ledger.tbt_target_s(port.running),
            last_token_s=self._last_token_s,
            prefill=self._chunked_view() or stage.view(stage.running, assumed_done_turn=assumed_done),
            preempted=stage.view(stage.preempted, assumed_done_turn=assumed_done),
            waiting=() if hidden else self.ledger.window(port.waiting, self._facts.limits.waiting_window),
            waiting_count=0 if hidden else len(port.waiting),
            kv_free_tokens=port.kv_free_tokens,
            limits=self._facts.limits,
            settings_version=self.steering.settings_version,
        )

    def _chunked_view(self) -> PrefillView | None:
        """The prefill that SGLang's mixed chunks are working on. Its launched chunks count as done: fused
        steps follow each other on one stream."""
        request = self._port.chunked_request
        tracked = self.ledger.get(request.rid) if request is not None else None
        if tracked is None or tracked.entry is None:
            return None
        entry = tracked.entry
        shape = PrefillShape.of([(entry.new_tokens, entry.reused_tokens)])
        return PrefillView(
            batch_id=0,
            mode=PrefillMode.CHUNKED,
            requests=(entry,),
            shape=shape,
            earliest_deadline_s=entry.deadline_s,
            done_tokens=min(max(0, request.extend_end - entry.reused_tokens), entry.new_tokens - 1),
        )

    # --- carry out (every rank)

    def _collect(self, turn: Turn) -> None:
        if turn.finish:
            self._finish_prefill()
        for batch in self.stage.members():
            if batch.batch_id in turn.dropped:
                self.stage.drop(batch)
                self._note_tokens(batch.batch.reqs)

    def _carry_out(self, turn: Turn) -> None:
        decision = turn.decision
        launched = False
        if decision is not None and decision.mode is not Mode.IDLE:
            if turn.stream_group != self._port.stream_group:
                self._port.use_group(turn.stream_group)
                self._meter.switches += 1
            self._group = decision.group
            launched = self._fuse(decision) if decision.mode is Mode.FUSED else self._split(decision)
        if not launched:
            self._port.nothing_launched()
        while len(self._pending) > (1 if launched else 0):
            self._read()
        self._launched_last_turn = launched
        if not launched and not self.is_busy:
            self._port.idle()
            self._sleep(IDLE_S)
        elif not launched:
            self._sleep(POLL_S)

    def _split(self, decision: Decision) -> bool:
        stage = self.stage
        if decision.preempt:
            stage.preempt()
            self._meter.preemptions += 1
        if decision.resume:
            stage.resume()
        if decision.admit:
            self._start_prefill(decision)
        beside = stage.running
        launched = None
        if decision.decode_steps and self._port.running:
            shape = self._port.decode_shape()
            launched = self._port.launch_decode()
            if launched is not None:
                self._pending.append(
                    self._meter.launched(
                        launched, decision, self._groups_sms(), shape, beside.shape if beside else None
                    )
                )
        self._launch_layers(decision)
        return launched is not None

    def _start_prefill(self, decision: Decision) -> None:
        batch = self._port.form_prefill(decision.admit)
        if batch is not None:
            entries = self.ledger.admitted((request.rid for request in batch.reqs), self.now_s())
            self.stage.start(batch, entries, self.now_s())
        elif decision.preempt:
            self.stage.resume()

    def _launch_layers(self, decision: Decision) -> None:
        """Layers beside the step just launched; for several steps ahead, this step's share of them."""
        running = self.stage.running
        if running is None or not decision.prefill_layers or self._port.is_abandoned(running.batch):
            return
        layers = -(-decision.prefill_layers // max(1, decision.decode_steps))
        layers = min(layers, self._port.layers - running.layers_launched)
        if layers:
            self.stage.launch(
                layers,
                self._groups_sms()[0],
                self._turns,
                alone=not self._port.running,
                predicted_s=decision.numbers.predicted_prefill_s,
            )

    def _fuse(self, decision: Decision) -> bool:
        if self.stage.members():
            raise EngineInvariantError("a fused step was decided while a layer-wise prefill is under way")
        port = self._port
        shape = port.decode_shape()
        if not decision.token_budget:
            launched = port.launch_decode() if port.running else None
            prefill = None
        else:
            chunked = self._chunked_view()
            launched = port.launch_fused(decision.admit, decision.token_budget)
            prefill = self._fused_prefill(launched, chunked, decision)
        if launched is None:
            return False
        self._pending.append(self._meter.launched(launched, decision, self._groups_sms(), shape, prefill))
        return True

    def _fused_prefill(
        self, launched: LaunchedStep | None, chunked: PrefillView | None, decision: Decision
    ) -> PrefillShape | None:
        """The prompt tokens that a fused step really holds; notes who was admitted."""
        if launched is None:
            return None
        waiting = {request.rid for request in self._port.waiting}
        admitted = [i for i in decision.admit if i not in waiting and self.ledger.get(i) is not None]
        entries = self.ledger.admitted(admitted, self.now_s())
        left = decision.token_budget - launched.decoding
        lengths = list(chunk_lengths(chunked, entries, left))
        return PrefillShape.of(lengths) if lengths else None

    def _groups_sms(self) -> tuple[int, int]:
        group = self._streams.groups[self._port.stream_group]
        return group.prefill_sms, group.decode_sms

    # --- read

    def _read(self) -> None:
        step = self._pending.popleft()
        self._port.read(step.launched)
        now_s = self.now_s()
        self._last_token_s = now_s
        self._note_tokens(step.launched.requests)
        if self._port.is_first_rank:
            reading = self._meter.read(step, now_s)
            if reading.feedback is not None:
                self.steering.learn(reading.feedback)
            self._reporter.send_step(reading.record)

    def _finish_prefill(self) -> None:
        """Merge the running batch. What rank 0 saw finished may have a moment left on another's device."""
        running = self.stage.running
        requests = running.batch.reqs if running is not None else []
        if running is not None:
            self.stage.wait(running)
        if not self._port.running:
            self._last_token_s = self.now_s()
        batch = self.stage.finish()
        self._note_tokens(requests)
        self._reporter.send_step(self._meter.prefilled(batch, self.now_s(), self._port.layers))

    def _note_tokens(self, requests: Sequence[Any]) -> None:
        self.ledger.give_tokens(requests, self.now_s())
