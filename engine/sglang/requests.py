"""Every request the loop knows, from its arrival to the one record of its end (invariant 5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter, is_

from pdmuxd.engine.core.types import WaitingRequest
from pdmuxd.engine.link.messages import RequestRecord
from pdmuxd.engine.link.request_tag import targets_in
from pdmuxd.engine.loop.answers import AnswerLengths
from pdmuxd.engine.loop.requests import DEFAULT_TARGET, RefusalCause, Target, as_admitted
from pdmuxd.engine.loop.waiting import WaitingLines
from pdmuxd.engine.sglang.api.types.requests import Request
from pdmuxd.engine.sglang.token_gap_log import TokenGapLog
from pdmuxd.engine.sglang.tracked_request import TENANT_KEY, TrackedRequest

_rid = attrgetter("rid")


class Ledger:
    """Implements RequestBook: requests by id, from arrival to end (invariant 5)."""

    def __init__(
        self,
        reused_tokens: Callable[[Request], int],
        on_end: Callable[[RequestRecord], object],
        is_whole: Callable[[Request], bool] = lambda _: False,
    ) -> None:
        """`is_whole`: whether a request's images are prefilled whole, by themselves."""
        self._reused_tokens = reused_tokens
        self._is_whole = is_whole
        self._on_end = on_end
        self._targets: Mapping[str, Target] = {}
        self._tracked: dict[str, TrackedRequest] = {}
        self._slots_held: Counter[str] = Counter()
        self._waiting: tuple[Request, ...] = ()
        self._lines = WaitingLines()
        self.answers = AnswerLengths()
        self._gap_log = TokenGapLog()
        self._just_looked_up: set[str] = set()
        """By the last `watch`."""
        self._running: tuple[list[Request], frozenset[float]] = [], frozenset()
        """Running requests, and their TBT targets."""
        self.prompt_tokens = 0
        self.reused_prompt_tokens = 0
        self.output_tokens = 0
        self.retractions = 0

    def __len__(self) -> int:
        return len(self._tracked)

    def get(self, request_id: str) -> TrackedRequest | None:
        return self._tracked.get(request_id)

    def awaiting_first_token(self) -> Iterator[tuple[str, float, float]]:
        """Tenant, arrival and TTFT target of each request that has no token yet."""
        for tracked in self._tracked.values():
            if tracked.first_token_s is None:
                yield tracked.tenant, tracked.arrival_s, tracked.ttft_target_s

    def watch(self, waiting: Sequence[Request], now_s: float) -> None:
        """Compare the engine's waiting queue with the last one seen: arrivals, retractions, aborts."""
        self._just_looked_up.clear()
        if len(waiting) == len(self._waiting) and all(map(is_, waiting, self._waiting)):
            return
        present = {request.rid for request in waiting}
        for request in self._waiting:
            tracked = self._tracked.get(request.rid)
            if tracked is not None and tracked.is_waiting and request.rid not in present:
                self._leave_queue(tracked)
        for request in waiting:
            tracked = self._tracked.get(request.rid)
            if tracked is None:
                self._arrive(request, now_s)
            elif not tracked.is_waiting:
                tracked.is_waiting = True
                self._give_slot_back(tracked.tenant)
                tracked.retractions += 1
                self.retractions += 1
                self._look_up(tracked)
                if tracked.entry is not None:
                    self._lines.add(tracked.entry, first=True)
        self._waiting = tuple(waiting)

    def released(self, request: Request, now_s: float) -> None:
        """The engine lets go of an aborted request. One that came and went between two looks ends here. So
        does a prompt in chunks: if it sat the last step out, no step that is still to be read holds it."""
        tracked = self._tracked.get(request.rid)
        if tracked is None:
            self._arrive(request, now_s)
            self._end(self._tracked[request.rid], "aborted")
        elif not tracked.is_waiting and request.finished():
            self._finish(tracked)

    def window(self, size: int) -> tuple[WaitingRequest, ...]:
        """Show at most `size` of the waiting, as policies see them."""
        return self._lines.window(size)

    def deprioritize(self, request_ids: Iterable[str]) -> None:
        """Show these behind all others from now on."""
        for request_id in request_ids:
            self._lines.deprioritize(request_id)

    def expired(self, now_s: float) -> list[tuple[str, RefusalCause]]:
        """Requests that wait and are to be refused by their tenants' rules."""
        return self._lines.expired(now_s)

    def refused(self, refusals: Iterable[tuple[str, RefusalCause]], now_s: float) -> None:  # noqa: ARG002
        """Note what ends when SGLang has let go of it; its record names the cause."""
        for request_id, cause in refusals:
            tracked = self._tracked.get(request_id)
            if tracked is not None and tracked.is_waiting:
                tracked.refusal_cause = cause

    def admitted(self, request_ids: Iterable[str], now_s: float) -> tuple[WaitingRequest, ...]:
        """Note that these hold KV from now on; their entries as admitted."""
        entries: list[WaitingRequest] = []
        for request_id in request_ids:
            tracked = self._tracked.get(request_id)
            if tracked is None:
                continue
            if tracked.is_waiting:
                tracked.is_waiting = False
                self._slots_held[tracked.tenant] += 1
            if self._lines.get(request_id) is not None:
                self._lines.remove(request_id)
            if tracked.prefill_start_s is None:
                tracked.prefill_start_s = now_s
            if tracked.entry is not None:
                tracked.entry = as_admitted(tracked.entry, now_s)
                entries.append(tracked.entry)
        self._waiting = tuple(r for r in self._waiting if (t := self.get(r.rid)) and t.is_waiting)
        return tuple(entries)

    def without_new(self, request_ids: Iterable[str]) -> tuple[str, ...]:
        """The requests that were not looked up when they arrived in this turn."""
        return tuple(i for i in request_ids if i not in self._just_looked_up)

    def look_up(self, request_ids: Iterable[str]) -> bool:
        """Look these up in the prefix cache again; returns whether any entry changed."""
        known = [self._tracked[request_id] for request_id in request_ids if request_id in self._tracked]
        changed = [self._look_up(tracked) for tracked in known]
        return any(changed)

    def retarget(self, targets: Mapping[str, Target]) -> None:
        """Put changed targets in force for every request that has not ended; looks nothing up."""
        self._targets = targets
        self._running = [], frozenset()
        for tracked in self._tracked.values():
            self._set_target(tracked)
        self._lines.restore(self._renewed)

    def entry(self, request: Request) -> WaitingRequest | None:
        """How a request looks to a policy, or looked when it was admitted."""
        tracked = self._tracked.get(request.rid)
        return tracked.entry if tracked is not None else None

    def tbt_target_s(self, decoding: Sequence[Request], joining: Sequence[Request] = ()) -> float | None:
        """The strictest target of those that decode and are about to; None if there are none."""
        targets_s = self._running_targets_s(decoding)
        if joining:
            targets_s = targets_s.union(self._targets_s(joining))
        return min(targets_s, default=None)

    def has_several_tbt_targets(self, decoding: Sequence[Request]) -> bool:
        """Whether those that decode have different TBT targets."""
        return len(self._running_targets_s(decoding)) > 1

    def tbt_targets_s(self, request_ids: Iterable[str]) -> list[float | None]:
        """The TBT target of each; None for one that has ended."""
        found = map(self._tracked.get, request_ids)
        return [None if tracked is None else tracked.planned_tbt_s for tracked in found]

    def slots_held(self) -> Mapping[str, int]:
        """Requests that hold KV, by tenant."""
        return self._slots_held

    def give_step(self, requests: Sequence[Request], now_s: float) -> None:
        """A decode or fused step was read: as `give_tokens`, but cheap for requests that get a token with
        every step."""
        gap_log = self._gap_log
        others = gap_log.note(requests, now_s)
        self.output_tokens += len(gap_log)
        for tracked in gap_log.ended():
            self._finish(tracked)
        for tracked in self.give_tokens(others, now_s):
            gap_log.join(tracked)

    def give_tokens(self, requests: Iterable[Request], now_s: float) -> list[TrackedRequest]:
        """Note the tokens that these requests got and end those that are done; returns the others that got
        any."""
        going_on: list[TrackedRequest] = []
        for request in requests:
            tracked = self._tracked.get(request.rid)
            if tracked is None:
                continue
            self._gap_log.leave(request.rid)
            produced = len(request.output_ids)
            got_any = produced > tracked.tokens
            if got_any:
                self._token(tracked, produced, now_s)
            if request.finished():
                self._finish(tracked)
            elif got_any:
                going_on.append(tracked)
        return going_on

    def _arrive(self, request: Request, now_s: float) -> None:
        custom = request.sampling_params.custom_params or {}
        tracked = TrackedRequest(
            request=request,
            tenant=str(custom.get(TENANT_KEY, "")),
            arrival_s=now_s,
            input_tokens=len(request.origin_input_ids),
            reused_tokens=0,
            own_targets=targets_in(custom),
            is_whole=self._is_whole(request),
        )
        self._tracked[request.rid] = tracked
        self._look_up(tracked)
        if tracked.entry is not None:
            self._lines.add(tracked.entry)
        self._just_looked_up.add(request.rid)

    def _look_up(self, tracked: TrackedRequest) -> bool:
        """Whether that changed how it looks."""
        reused = self._reused_tokens(tracked.request)
        if tracked.first_token_s is None:
            tracked.reused_tokens = reused
            self._set_target(tracked)
        before = tracked.entry
        tracked.entry = self._entry(tracked, reused)
        if self._lines.get(tracked.entry.request_id) is not None:
            self._lines.update(tracked.entry)
        return before is None or before.reused_tokens != reused

    def _set_target(self, tracked: TrackedRequest) -> None:
        target = tracked.target = self._targets.get(tracked.tenant, DEFAULT_TARGET)
        new_tokens = tracked.input_tokens - tracked.reused_tokens
        slo = target.slo_of(tracked.own_targets)
        tracked.ttft_target_s = slo.ttft_target_s(new_tokens)
        tracked.tbt_target_s = slo.tbt_s
        tracked.e2e_target_s = slo.e2e_s
        tracked.planned_tbt_s = target.planned_tbt_s(slo)
        tracked.slo_version = target.version
        if slo.e2e_s is not None and tracked.first_token_s is not None:
            taken_s = tracked.first_token_s - tracked.arrival_s
            tokens, own = self._answer_tokens(tracked), tracked.own_targets
            tracked.planned_tbt_s = target.pace_s(slo, taken_s=taken_s, answer_tokens=tokens, own=own)

    def _entry(self, tracked: TrackedRequest, reused_tokens: int) -> WaitingRequest:
        return tracked.waiting_entry(reused_tokens, self._answer_tokens(tracked))

    def _answer_tokens(self, tracked: TrackedRequest) -> float:
        """That its answer is expected to have: as its tenant's usually do, or as many as it asks for at most.
        Not looked up where its whole answer has no target."""
        if tracked.e2e_target_s is None:
            return 0.0
        most = tracked.request.sampling_params.max_new_tokens
        usual = self.answers.of(tracked.tenant)
        return usual if most is None else min(usual, most)

    def _token(self, tracked: TrackedRequest, produced: int, now_s: float) -> None:
        self.output_tokens += produced - tracked.tokens
        if tracked.first_token_s is None:
            tracked.first_token_s = now_s
            self.prompt_tokens += tracked.input_tokens
            self.reused_prompt_tokens += tracked.reused_tokens
            if tracked.e2e_target_s is not None:
                self._set_target(tracked)
                self._running = [], frozenset()
        else:
            tracked.gaps_s.append(now_s - tracked.last_token_s)
        tracked.tokens = produced
        tracked.last_token_s = now_s

    def _running_targets_s(self, decoding: Sequence[Request]) -> frozenset[float]:
        if decoding != self._running[0]:
            self._running = list(decoding), frozenset(self._targets_s(decoding))
        return self._running[1]

    def _targets_s(self, requests: Sequence[Request]) -> list[float]:
        known = map(self._tracked.get, map(_rid, requests))
        return [tracked.planned_tbt_s for tracked in known if tracked is not None]

    def _finish(self, tracked: TrackedRequest) -> None:
        aborted = type(tracked.request.finished_reason).__name__ == "FINISH_ABORT"
        self._end(tracked, "aborted" if aborted else "finished")

    def _leave_queue(self, tracked: TrackedRequest) -> None:
        self._end(tracked, "aborted" if tracked.refusal_cause is None else "refused")

    def _renewed(self, entry: WaitingRequest) -> WaitingRequest:
        tracked = self._tracked[entry.request_id]
        tracked.entry = self._entry(tracked, entry.reused_tokens)
        return tracked.entry

    def _give_slot_back(self, tenant: str) -> None:
        self._slots_held[tenant] -= 1
        if not self._slots_held[tenant]:
            del self._slots_held[tenant]

    def _end(self, tracked: TrackedRequest, outcome: str) -> None:
        if self._lines.get(tracked.request.rid) is not None:
            self._lines.remove(tracked.request.rid)
        self._gap_log.leave(tracked.request.rid)
        if not tracked.is_waiting:
            self._give_slot_back(tracked.tenant)
        del self._tracked[tracked.request.rid]
        self._on_end(tracked.record(outcome))
