"""The emulated engine's parts and what happens to them: the state that the host and the callers share."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from pdmuxd.engine.core.errors import EngineInvariantError
from pdmuxd.engine.core.policies.base import AnyPolicy, PolicyContext
from pdmuxd.engine.core.policies.registry import build_policy
from pdmuxd.engine.core.slo import DEFAULT_SLO
from pdmuxd.engine.core.types import EngineLimits, Observation, WaitingRequest
from pdmuxd.engine.emulator.batches import Admitted, DecodeBatch
from pdmuxd.engine.emulator.kv import KvPool
from pdmuxd.engine.emulator.observer import EngineObserver
from pdmuxd.engine.emulator.prefill import PrefillStage
from pdmuxd.engine.emulator.profile import Profile
from pdmuxd.engine.emulator.queue import WaitingQueue, retargeted
from pdmuxd.engine.emulator.requests import ENDED, EmulatedRequest, Phase, TenantTarget
from pdmuxd.engine.emulator.steplog import StepLog
from pdmuxd.engine.emulator.telemetry import Step, Totals, step_record
from pdmuxd.engine.link.messages import IterationRecord

DEFAULT_TARGET = TenantTarget(slo=DEFAULT_SLO, version=0)
MAX_RECORDS = 50_000


class Machine:
    """Device, KV pool, queue and batches of one emulated engine, and the transitions of a request."""

    def __init__(
        self,
        *,
        profile: Profile,
        policy: str,
        limits: EngineLimits,
        observer: EngineObserver,
        step_records: bool,
        block_tokens: int,
        keep_step_log: bool,
    ) -> None:
        self.profile = profile
        self.limits = limits
        self.now_s = 0.0
        self.totals = Totals()
        self.device = profile.new_device()
        self.kv = KvPool(profile.kv_capacity_tokens, block_tokens)
        self.queue = WaitingQueue()
        self.decode = DecodeBatch()
        self.prefill = PrefillStage(profile, self.device, self.kv, self.queue)
        self.requests: dict[str, EmulatedRequest] = {}
        """All that have not ended, by id."""
        self.step_log = StepLog(keep_all=keep_step_log)
        """End time of every decode step: with a request's segments, the instants of its tokens."""
        self.records: deque[IterationRecord] | None = deque() if step_records else None
        self.dropped_records = 0
        self.last_token_s = 0.0
        """When the decode batch, as it is now, last got tokens."""
        self.settings_version = 0
        self.targets: Mapping[str, TenantTarget] = {}
        self.context = profile.policy_context
        self.policy: AnyPolicy = build_policy(policy, self.context)
        self.next_policy: AnyPolicy | None = None
        self.state: object = self.policy.initial_state()
        self.partition_id = self.policy.table.PREFILL_ONLY
        self._observer = observer

    def observe(self) -> Observation:
        """What a policy sees at this safe point."""
        stage = self.prefill
        in_flight = stage.layers_in_flight
        hidden = self.next_policy is not None
        return Observation(
            now_s=self.now_s,
            partition_id=self.partition_id,
            decode=self.decode.shape,
            tbt_target_s=self.decode.tbt_target_s,
            last_token_s=self.last_token_s,
            prefill=stage.running.view(in_flight, chunk_in_flight=bool(stage.chunks))
            if stage.running is not None
            else None,
            preempted=stage.preempted.view(0) if stage.preempted is not None else None,
            waiting=() if hidden else self.queue.window(self.limits.waiting_window),
            waiting_count=0 if hidden else len(self.queue),
            kv_free_tokens=self.kv.available_tokens,
            limits=self.limits,
            settings_version=self.settings_version,
        )

    def refresh(self, request_ids: Iterable[str]) -> bool:
        """Look waiting prompts up in the cache again; whether any shares more or less than it seemed."""
        changed = False
        for request_id in request_ids:
            found = self.queue.get(request_id)
            if found is None:
                continue
            request, entry = found
            reused = self.kv.matched_tokens(request.block_keys, request.input_tokens)
            if reused != entry.reused_tokens:
                self.queue.update(self.entry(request))
                changed = True
        return changed

    def swap_policy(self) -> None:
        """Put a new policy in force once no prefill is under way; until then nothing new is admitted."""
        if self.next_policy is None or self.prefill.running or self.prefill.preempted:
            return
        self.policy, self.next_policy = self.next_policy, None
        self.state = self.policy.initial_state()
        self.partition_id = self.policy.table.PREFILL_ONLY

    def use_context(self, policy: str, context: PolicyContext, *, continues: bool) -> None:
        """Decide with another context or policy. Raises: PolicyError, PartitionError, and changes nothing.

        `continues`: its predictors are of the profile in force, only refined; the policy says what of that it
        has learned stays. Other predictions are believed at once, other groups once no prefill is under way.
        """
        built = build_policy(policy, context)
        is_same = policy == self.policy.name and built.table == self.policy.table
        if is_same and context is not self.context:
            self.policy = built
            self.state = built.adopt(self.state, self.context, is_refined=continues)
        self.next_policy = None if is_same else built
        self.context = context

    def merge_prefill(self, *, is_chunk: bool) -> None:
        """The chunk, or the last layer, is done: first tokens, and a sample for the policy to learn from.

        Only a batch of one request, or a graph of equal ones, says what a request of its shape takes.
        """
        batch = self.prefill.running
        done = self.prefill.chunk_done(self.now_s) if is_chunk else self.prefill.complete(self.now_s)
        if batch is not None and done and (batch.shape.bs == 1 or batch.graph_shape is not None):
            new_tokens = done[0].entry.new_tokens
            if batch.graph_shape is not None:
                new_tokens = batch.graph_shape.new_tokens // batch.graph_shape.bs
            reused_tokens = sum(member.entry.reused_tokens for member in done) // len(done)
            sample = self.profile.truth.prefill_terms(new_tokens, reused_tokens)
            self.state = self.policy.learn_prefill(sample, self.state)
        self.give_first_tokens(done)

    def give_first_tokens(self, members: list[Admitted]) -> None:
        """Prefilled requests have their first token and join the decode batch."""
        for member in members:
            request = member.request
            if not request.retractions:
                self.totals.prompt_tokens += request.input_tokens
                self.totals.reused_tokens += member.holding.matched_tokens
            self.totals.output_tokens += 1
            self._observer.on_first_token(request, self.now_s)
            if not self.decode.members:
                self.last_token_s = self.now_s
            self.decode.join(member, self.now_s)
            request.phase = Phase.DECODE
            if request.produced_tokens >= request.output_tokens:
                self.decode.leave(member)
                self._finish(member)

    def give_decode_tokens(self) -> None:
        """A decode step is done: one token for everyone in the batch."""
        bs = len(self.decode.members)
        self.decode.in_flight = False
        self.step_log.append(self.now_s)
        self.last_token_s = self.now_s
        self.totals.output_tokens += bs
        self._observer.on_decode_tokens(self.decode.requests(), self.now_s)
        for member in self.decode.step():
            self._finish(member)
        if self.step_log.is_long:
            self.step_log.trim(min((r.segments[0][1] for r in self._producing()), default=self.decode.steps))

    def _producing(self) -> Iterator[EmulatedRequest]:
        """Requests that have tokens and have not ended."""
        return (request for request in self.requests.values() if request.segments)

    def make_room(self) -> None:
        """Take KV for the next decode step; retract the latest arrivals while there is too little."""
        while not self.kv.take(len(self.decode.members)):
            member = self.decode.latest()
            self.decode.leave(member)
            self.kv.release(member.holding)
            request = member.request
            request.phase = Phase.WAITING
            request.retractions += 1
            self.totals.retractions += 1
            self.queue.add(request, self.entry(request), first=True)
        self.decode.in_flight = bool(self.decode.members)

    def end_step(self, step: Step) -> None:
        """A decision has been carried out: count it, tell it, record it."""
        self.totals.steps += 1
        self._observer.on_step(step.decision, step.start_s, self.now_s)
        if self.records is None:
            return
        if len(self.records) == MAX_RECORDS:
            self.records.popleft()
            self.dropped_records += 1
        self.records.append(step_record(step, self.totals.steps, self.now_s))

    def pass_time(self, until_s: float) -> None:
        """Let the device run up to an instant."""
        if until_s > self.now_s and math.isfinite(until_s):
            self.device.run(until_s - self.now_s)
            self.now_s = until_s

    def entry(self, request: EmulatedRequest) -> WaitingRequest:
        """How a request looks to a policy while it waits."""
        reused = self.kv.matched_tokens(request.block_keys, request.input_tokens)
        return WaitingRequest(
            request_id=request.request_id,
            tenant=request.tenant,
            arrival_s=request.arrival_s,
            deadline_s=request.arrival_s + request.ttft_target_s,
            new_tokens=request.input_tokens + request.produced_tokens - reused,
            reused_tokens=reused,
            tbt_target_s=request.tbt_target_s,
        )

    def set_target(self, request: EmulatedRequest) -> None:
        """Give a request its tenant's targets as they are now."""
        target = self.targets.get(request.tenant, DEFAULT_TARGET)
        reused = request.reused_tokens
        if request.phase is Phase.WAITING and not request.produced_tokens:
            reused = self.kv.matched_tokens(request.block_keys, request.input_tokens)
        request.ttft_target_s = target.slo.ttft_target_s(request.input_tokens - reused)
        request.tbt_target_s = target.slo.tbt_s
        request.slo_version = target.version

    def _finish(self, member: Admitted) -> None:
        self.kv.release(member.holding)
        self.end(member.request, Phase.FINISHED)

    def end(self, request: EmulatedRequest, phase: Phase) -> None:
        """The one place where a request ends (invariant 5)."""
        if request.phase in ENDED:
            raise EngineInvariantError(f"request {request.request_id} ended twice")
        request.phase = phase
        request.end_s = self.now_s
        self.requests.pop(request.request_id, None)
        self._observer.on_end(request, self.now_s)

    def retarget(self) -> None:
        """Put changed targets in force for every request that has not ended."""
        for request in self.requests.values():
            self.set_target(request)
        self.queue.retarget()
        for member in self.prefill.members():
            member.entry = retargeted(member.entry, member.request)
        self.decode.retarget()
