"""The requests of the emulated engine, each from its arrival to its one end (invariant 5)."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pdmuxd.engine.core.errors import EngineInvariantError
from pdmuxd.engine.core.slo import Slo
from pdmuxd.engine.core.types import WaitingRequest
from pdmuxd.engine.emulator.batches import Admitted, DecodeBatch, EmulatedStep
from pdmuxd.engine.emulator.kv import Holding, KvPool
from pdmuxd.engine.emulator.observer import EngineObserver
from pdmuxd.engine.emulator.requests import ENDED, EmulatedRequest, Phase
from pdmuxd.engine.emulator.steplog import StepLog
from pdmuxd.engine.loop.answers import AnswerLengths
from pdmuxd.engine.loop.requests import (
    DEFAULT_TARGET,
    RefusalCause,
    Target,
    as_admitted,
    enters_cache_at_once,
    planned_e2e_s,
    waiting_entry,
)
from pdmuxd.engine.loop.waiting import WaitingLines


class EmulatedBook:
    """Implements RequestBook. What a decode step costs does not depend on how many requests are in it."""

    def __init__(self, kv: KvPool, observer: EngineObserver, step_log: StepLog) -> None:
        self.requests: dict[str, EmulatedRequest] = {}
        """All that have not ended, by id."""
        self.held: dict[str, Admitted] = {}
        """Those that hold KV."""
        self._slots_held: Counter[str] = Counter()
        self.queue = WaitingLines()
        self.answers = AnswerLengths()
        self.batch = DecodeBatch()
        self.chunked: Admitted | None = None
        """The request whose prefill is under way in chunks."""
        self.unread: deque[EmulatedStep] = deque()
        self.step_log = step_log
        """End time of every decode step: with a request's segments, the instants of its tokens."""
        self.prompt_tokens = self.reused_prompt_tokens = self.output_tokens = self.retractions = 0
        self.changes = 0
        """Grows whenever a request goes from one place to another."""
        self._kv = kv
        self._observer = observer
        self._targets: Mapping[str, Target] = {}

    def __len__(self) -> int:
        return len(self.requests)

    # --- what the loop asks

    def watch(self, waiting: object, now_s: float) -> None:
        """Nothing to do: requests come and go through this book itself."""

    def entry(self, request: Admitted) -> WaitingRequest:
        """How it looked when it was admitted."""
        return request.entry

    def window(self, size: int) -> tuple[WaitingRequest, ...]:
        """Show at most `size` of the waiting, as policies see them."""
        return self.queue.window(size)

    def deprioritize(self, request_ids: Iterable[str]) -> None:
        """Show these behind all others from now on."""
        for request_id in request_ids:
            self.queue.deprioritize(request_id)

    def expired(self, now_s: float) -> list[tuple[str, RefusalCause]]:
        """Waiting requests that their tenants' rules refuse by now, and why."""
        return self.queue.expired(now_s)

    def refused(self, refusals: Iterable[tuple[str, RefusalCause]], now_s: float) -> None:
        """Note that these end."""
        for request_id, cause in refusals:
            if self.queue.get(request_id) is not None:
                self.queue.remove(request_id)
                request = self.requests[request_id]
                request.refusal_cause = cause
                self.end(request, Phase.REFUSED, now_s)

    def admitted(self, request_ids: Iterable[str], now_s: float) -> tuple[WaitingRequest, ...]:  # noqa: ARG002
        """The entries of those that hold KV by now."""
        return tuple(self.held[name].entry for name in request_ids if name in self.held)

    def without_new(self, request_ids: Iterable[str]) -> tuple[str, ...]:
        """All: a look costs little here."""
        return tuple(request_ids)

    def look_up(self, request_ids: Iterable[str]) -> bool:
        """Look these prompts up in the prefix cache again; returns whether any entry changed."""
        changed = False
        for request_id in request_ids:
            entry = self.queue.get(request_id)
            if entry is None:
                continue
            request = self.requests[request_id]
            if self._matched_tokens(request) != entry.reused_tokens:
                self.queue.update(self._waiting_entry(request))
                changed = True
        return changed

    def retarget(self, targets: Mapping[str, Target]) -> None:
        """Put changed targets in force for every request that has not ended."""
        self._targets = targets
        for request in self.requests.values():
            self._set_target(request)
        self.queue.restore(self._retargeted)
        for member in self.held.values():
            member.entry = self._retargeted(member.entry)
        self.batch.retarget()

    def tbt_target_s(self, decoding: object, joining: Sequence[Admitted] = ()) -> float | None:  # noqa: ARG002
        """The strictest target of those that decode and are about to; None if there are none."""
        strictest_s = self.batch.tbt_target_s
        if not joining:
            return strictest_s
        targets_s = [member.request.planned_tbt_s for member in joining]
        return min(targets_s if strictest_s is None else [strictest_s, *targets_s])

    def has_several_tbt_targets(self, decoding: object) -> bool:  # noqa: ARG002 - the interface
        return self.batch.has_several_tbt_targets

    def tbt_targets_s(self, request_ids: Iterable[str]) -> list[float | None]:
        """The TBT target of each; None for one that has ended."""
        found = map(self.requests.get, request_ids)
        return [None if request is None else request.planned_tbt_s for request in found]

    def slots_held(self) -> Mapping[str, int]:
        """Requests that hold KV, by tenant."""
        return self._slots_held

    def give_step(self, requests: EmulatedStep, now_s: float) -> None:
        """A decode or fused step was read."""
        step = requests
        self.changes += 1
        if step.is_decode:
            self.batch.read += 1
            self.step_log.append(now_s)
            self.output_tokens += step.decoding
            self._observer.on_decode_tokens(self._given(step), now_s)
            for member in step.ended:
                if self.holds(member):
                    self._finish(member, now_s)
            self._trim()
        self.give_tokens(step.completed, now_s)

    def give_tokens(self, requests: Iterable[Admitted], now_s: float) -> None:
        """Note that these were prefilled, and their first tokens read."""
        self.changes += 1
        for member in requests:
            if self.holds(member) and member.awaits_first:
                self._first_token(member, now_s)

    def awaiting_first_token(self) -> Iterator[tuple[str, float, float]]:
        """Tenant, arrival and TTFT target of each request that has no token yet."""
        for request in self.requests.values():
            if request.first_token_s is None:
                yield request.tenant, request.arrival_s, request.ttft_target_s

    # --- what callers and the port do

    def arrive(self, request: EmulatedRequest) -> None:
        self.changes += 1
        self.requests[request.request_id] = request
        self.queue.add(self._waiting_entry(request))

    def admit(self, request_id: str, now_s: float) -> Admitted | None:
        """Take KV for a waiting request; None if it is not waiting or its KV does not fit now."""
        entry = self.queue.get(request_id)
        if entry is None:
            return None
        request = self.requests[request_id]
        holding = self._kv.admit(request.block_keys, request.input_tokens, request.produced_tokens)
        if holding is None:
            return None
        self.queue.remove(request_id)
        request.phase = Phase.PREFILL
        if request.prefill_start_s is None:
            request.prefill_start_s = now_s
            request.reused_tokens = holding.matched_tokens
        entry = replace(entry, new_tokens=holding.private_tokens, reused_tokens=holding.matched_tokens)
        entry = as_admitted(entry, now_s)
        member = self.held[request_id] = Admitted(request=request, entry=entry, holding=holding)
        self._slots_held[request.tenant] += 1
        self.changes += 1
        return member

    def holds(self, member: Admitted) -> bool:
        """Whether it was not aborted or retracted since it was admitted."""
        return self.held.get(member.rid) is member

    def prompt_computed(self, member: Admitted) -> None:
        """Publish its prompt, if others may share its blocks before its answer ends."""
        if enters_cache_at_once(member.entry.new_tokens):
            self._publish(member)

    def join(self, member: Admitted) -> None:
        """Let it decode from the next step on, if its first token is not its last."""
        self.changes += 1
        member.request.phase = Phase.DECODE
        if member.begin_tokens(self.batch.steps):
            self.batch.join(member)

    def make_room(self, sitting_out: int = 0) -> None:
        """Take KV for the next decode step; retract the latest arrivals while there is too little."""
        while not self._kv.take(max(0, len(self.batch.members) - sitting_out)):
            member = self.batch.latest()
            request = member.request
            self._leave(member)
            request.phase = Phase.WAITING
            request.retractions += 1
            self.retractions += 1
            self.queue.add(self._waiting_entry(request), first=True)

    def abort(self, request_id: str, now_s: float) -> bool:
        """End a request wherever it is; False if it is unknown or has ended."""
        request = self.requests.get(request_id)
        if request is None:
            return False
        if self.queue.get(request_id) is not None:
            self.queue.remove(request_id)
        else:
            member = self.held[request_id]
            if request.phase is Phase.DECODE and not member.awaits_first:
                self._publish_late(member)
            self._leave(member)
        self.end(request, Phase.ABORTED, now_s)
        return True

    def end(self, request: EmulatedRequest, phase: Phase, now_s: float) -> None:
        """The one place where a request ends. Raises: EngineInvariantError if it has."""
        if request.phase in ENDED:
            raise EngineInvariantError(f"request {request.request_id} ended twice")
        self.changes += 1
        request.phase = phase
        request.end_s = now_s
        self.requests.pop(request.request_id, None)
        self._observer.on_end(request, now_s)

    def holdings(self) -> list[Holding]:
        """What each request would hold if it left now."""
        batch, found = self.batch, list[Holding]()
        for name, member in self.held.items():
            taken = batch.taken_tokens(member) if name in batch.members else 0
            found.append(replace(member.holding, private_tokens=member.holding.private_tokens + taken))
        return found

    def set_target(self, request: EmulatedRequest) -> None:
        """Give a request its tenant's targets as they are now."""
        self._set_target(request)

    # --- inside

    def _set_target(self, request: EmulatedRequest) -> None:
        target = self._targets.get(request.tenant, DEFAULT_TARGET)
        reused = request.reused_tokens
        if request.phase is Phase.WAITING and not request.produced_tokens:
            reused = self._matched_tokens(request)
        slo = target.slo_of(request.own_targets)
        request.ttft_target_s = slo.ttft_target_s(request.input_tokens - reused)
        request.tbt_target_s = slo.tbt_s
        request.e2e_target_s = slo.e2e_s
        request.planned_tbt_s = self._planned_tbt_s(request, target, slo)
        request.slo_version = target.version

    def _planned_tbt_s(self, request: EmulatedRequest, target: Target, slo: Slo) -> float:
        if slo.e2e_s is None or request.first_token_s is None:
            return target.planned_tbt_s(slo)
        taken_s = request.first_token_s - request.arrival_s
        tokens = self.answers.of(request.tenant)
        return target.pace_s(slo, taken_s=taken_s, answer_tokens=tokens, own=request.own_targets)

    def _matched_tokens(self, request: EmulatedRequest) -> int:
        return self._kv.matched_tokens(request.block_keys, request.input_tokens)

    def _waiting_entry(self, request: EmulatedRequest) -> WaitingRequest:
        reused = self._matched_tokens(request)
        return self._entry(
            request,
            new_tokens=request.input_tokens + request.produced_tokens - reused,
            reused_tokens=reused,
        )

    def _retargeted(self, entry: WaitingRequest) -> WaitingRequest:
        request = self.requests[entry.request_id]
        return self._entry(request, new_tokens=entry.new_tokens, reused_tokens=entry.reused_tokens)

    def _entry(self, request: EmulatedRequest, *, new_tokens: int, reused_tokens: int) -> WaitingRequest:
        return waiting_entry(
            self._targets.get(request.tenant, DEFAULT_TARGET),
            request_id=request.request_id,
            tenant=request.tenant,
            arrival_s=request.arrival_s,
            ttft_target_s=request.ttft_target_s,
            tbt_target_s=request.planned_tbt_s,
            new_tokens=new_tokens,
            reused_tokens=reused_tokens,
            has_begun=request.first_token_s is not None,
            e2e_target_s=planned_e2e_s(request.e2e_target_s, request.own_targets),
            answer_tokens=0.0 if request.e2e_target_s is None else self.answers.of(request.tenant),
        )

    def _given(self, step: EmulatedStep) -> Iterator[EmulatedRequest]:
        """The requests that got a token from a step; for use while the step is read."""
        for member in self.batch.in_step(step.index):
            yield member.request
        # A request that got its last token from this step, or from one launched since, has left the batch.
        for launched in (step, *self.unread):
            for member in launched.ended:
                if member.is_in_step(step.index) and self.holds(member):
                    yield member.request

    def _first_token(self, member: Admitted, now_s: float) -> None:
        request = member.request
        if not request.retractions:
            self.prompt_tokens += request.input_tokens
            self.reused_prompt_tokens += member.holding.matched_tokens
        self.output_tokens += 1
        member.note_first(now_s)
        if request.first_token_s is None:
            request.first_token_s = now_s
            if request.e2e_target_s is not None:
                target = self._targets.get(request.tenant, DEFAULT_TARGET)
                slo = target.slo_of(request.own_targets)
                request.planned_tbt_s = self._planned_tbt_s(request, target, slo)
                self.batch.retarget()
        self._observer.on_first_token(request, now_s)
        _, first, stop = request.segments[-1]
        if stop == first:  # no decode step follows
            self._finish(member, now_s)

    def _finish(self, member: Admitted, now_s: float) -> None:
        request = member.request
        self._publish_late(member)
        if request.answer_keys:
            full = request.input_tokens // self._kv.block_tokens
            self._kv.publish_answer(member.holding, (*request.block_keys[:full], *request.answer_keys))
        self._release(member)
        self.end(member.request, Phase.FINISHED, now_s)

    def _publish(self, member: Admitted) -> None:
        """Let others share the blocks of its prompt."""
        request = member.request
        self._kv.publish(member.holding, request.block_keys, request.input_tokens)

    def _publish_late(self, member: Admitted) -> None:
        """Publish its prompt as its answer ends, if it was not published before."""
        if not enters_cache_at_once(member.entry.new_tokens):
            self._publish(member)

    def _leave(self, member: Admitted) -> None:
        """Give its KV back before its end; the tokens on the device are lost."""
        self.changes += 1
        if member.rid in self.batch.members:
            self.batch.leave(member)
        if member.request.segments:
            self._uncount(member)
        member.forget_unread(self.batch.read)
        if self.chunked is member:
            self.chunked = None
        self._release(member)

    def _release(self, member: Admitted) -> None:
        self._kv.release(member.holding)
        del self.held[member.rid]
        tenant = member.request.tenant
        self._slots_held[tenant] -= 1
        if not self._slots_held[tenant]:
            del self._slots_held[tenant]

    def _uncount(self, member: Admitted) -> None:
        for step in self.unread:
            if step.is_decode and member.is_in_step(step.index):
                step.decoding -= 1

    def _trim(self) -> None:
        if self.step_log.is_long:
            producing: Iterator[Any] = (r for r in self.requests.values() if r.segments)
            self.step_log.trim(min((r.segments[0][1] for r in producing), default=self.batch.read))
