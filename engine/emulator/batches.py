"""The batches of the emulated engine: decoding requests with their running sums, and a prefill."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from pdmuxd.engine.core.types import (
    NO_DECODE,
    DecodeShape,
    PrefillMode,
    PrefillShape,
    PrefillView,
    WaitingRequest,
)
from pdmuxd.engine.emulator.kv import Holding
from pdmuxd.engine.emulator.requests import EmulatedRequest


@dataclass(slots=True, eq=False)
class Admitted:
    """A request that holds KV: its waiting entry as admitted, and its holding."""

    request: EmulatedRequest
    entry: WaitingRequest
    holding: Holding
    done_tokens: int = 0
    """Prefilled tokens of `entry.new_tokens`, in a chunked batch."""


@dataclass(slots=True, eq=False)
class PrefillBatch:
    """A prefill in progress; `shape` is fixed when it is formed."""

    batch_id: int
    mode: PrefillMode
    members: list[Admitted]
    shape: PrefillShape
    layers_launched: int = 0
    was_preempted: bool = False
    graph_shape: PrefillShape | None = None
    """What it computes as a captured graph, padding included; None with the standard kernel."""

    def extend(self, members: list[Admitted]) -> None:
        """More requests join a chunked batch."""
        self.members.extend(members)
        self.graph_shape = None
        self.shape = PrefillShape.of((m.entry.new_tokens, m.entry.reused_tokens) for m in self.members)

    def view(self, layers_in_flight: int, *, chunk_in_flight: bool = False) -> PrefillView:
        """What a policy sees of it."""
        entries = tuple(member.entry for member in self.members)
        return PrefillView(
            batch_id=self.batch_id,
            mode=self.mode,
            requests=entries,
            shape=self.shape,
            earliest_deadline_s=min(entry.deadline_s for entry in entries),
            layers_launched=self.layers_launched,
            layers_done=self.layers_launched - layers_in_flight,
            done_tokens=sum(member.done_tokens for member in self.members),
            chunk_in_flight=chunk_in_flight,
            was_preempted=self.was_preempted,
        )


@dataclass(slots=True)
class DecodeBatch:
    """The decoding requests. A step costs O(1): a request's last step is known when it joins."""

    members: dict[str, Admitted] = field(default_factory=dict)
    reused_tokens: int = 0
    steps: int = 0
    """Decode steps since the engine started; index into the log of step end times."""
    in_flight: bool = False
    """Whether a step is on the device, for which each member has taken a token of KV."""
    _ends: list[tuple[int, int, str]] = field(default_factory=list)
    _targets: Counter[float] = field(default_factory=Counter)
    _joined: int = 0
    _max_context_member: Admitted | None = None
    """The member with the longest context, if somebody has looked since the last change."""

    @property
    def shape(self) -> DecodeShape:
        """Batch size and the KV tokens that the next step reads."""
        bs = len(self.members)
        if not bs:
            return NO_DECODE
        return DecodeShape(
            bs=bs, reused_tokens=self.reused_tokens, max_context_tokens=self._max_context_tokens()
        )

    @property
    def tbt_target_s(self) -> float | None:
        """The strictest target in the batch."""
        return min(self._targets) if self._targets else None

    def requests(self) -> Iterable[EmulatedRequest]:
        """The members, in the order in which they joined."""
        return (member.request for member in self.members.values())

    def join(self, member: Admitted, now_s: float) -> None:
        """Add a request that just got its first token (or its next one, after a retraction).

        The KV of its newest token is written by the next step, hence the `- 1`.
        """
        request = member.request
        self._joined += 1
        self.members[request.request_id] = member
        self.reused_tokens += request.input_tokens + request.produced_tokens - 1
        self._targets[request.tbt_target_s] += 1
        self._max_context_member = None
        request.segments.append((now_s, self.steps, -1))
        last_step = self.steps + request.output_tokens - request.produced_tokens
        heapq.heappush(self._ends, (last_step, self._joined, request.request_id))

    def step(self) -> list[Admitted]:
        """One token for everyone; returns those for whom it was the last, already removed."""
        self.steps += 1
        self.reused_tokens += len(self.members)
        ended: list[Admitted] = []
        while self._ends and self._ends[0][0] <= self.steps:
            last_step, _, request_id = heapq.heappop(self._ends)
            member = self.members.get(request_id)
            if member is not None and self._last_step(member.request) == last_step:
                self.leave(member)
                ended.append(member)
        return ended

    def leave(self, member: Admitted) -> None:
        """Remove a request, settling what it has produced.

        The pool counted a token per step for the whole batch; here it becomes the request's own.
        """
        request = member.request
        start_s, first, _ = request.segments[-1]
        request.segments[-1] = (start_s, first, self.steps)
        request.produced_tokens += self.steps - first
        member.holding.private_tokens += self.steps - first + self.in_flight
        self.reused_tokens -= request.input_tokens + request.produced_tokens - 1
        del self.members[request.request_id]
        self._max_context_member = None
        self._targets[request.tbt_target_s] -= 1
        if not self._targets[request.tbt_target_s]:
            del self._targets[request.tbt_target_s]

    def settled_holding(self, member: Admitted) -> Holding:
        """What a member would hold if it left now."""
        taken = self.steps - member.request.segments[-1][1] + self.in_flight
        return replace(member.holding, private_tokens=member.holding.private_tokens + taken)

    def latest(self) -> Admitted:
        """The member that joined last: the first to be retracted."""
        return next(reversed(self.members.values()))

    def retarget(self) -> None:
        """Count the targets again after the requests' targets changed."""
        self._targets = Counter(member.request.tbt_target_s for member in self.members.values())

    def _max_context_tokens(self) -> int:
        """All contexts grow alike, so the longest stays so until someone joins or leaves."""
        if self._max_context_member is None:
            members = self.members.values()
            self._max_context_member = max(members, key=lambda member: self._context_tokens(member.request))
        return self._context_tokens(self._max_context_member.request)

    def _context_tokens(self, request: EmulatedRequest) -> int:
        return request.input_tokens + request.produced_tokens + self.steps - request.segments[-1][1]

    def _last_step(self, request: EmulatedRequest) -> int:
        return request.segments[-1][1] + request.output_tokens - request.produced_tokens
