"""The batches of the emulated engine: decoding requests with their running sums, and a prefill by layers."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from pdmuxd.engine.core.types import NO_DECODE, DecodeShape, PrefillShape, WaitingRequest
from pdmuxd.engine.emulator.device import Event
from pdmuxd.engine.emulator.kv import Holding
from pdmuxd.engine.emulator.requests import EmulatedRequest


@dataclass(slots=True, eq=False)
class Admitted:
    """A request that holds KV: its waiting entry as admitted, and its holding."""

    request: EmulatedRequest
    entry: WaitingRequest
    holding: Holding
    done_tokens: int = 0
    """Tokens of `entry.new_tokens` that are in the chunks launched so far."""
    awaits_first: bool = False
    """Its whole prompt is computed or launched, but its first token was not read yet."""

    @property
    def rid(self) -> str:
        """The name by which the loop knows it."""
        return self.request.request_id

    def begin_tokens(self, step: int) -> bool:
        """Note that its first token is on its way. If more follow, the next comes with decode step `step`."""
        request = self.request
        self.awaits_first = True
        request.produced_tokens += 1
        goes_on = request.produced_tokens < request.output_tokens
        request.segments.append((None, step, -1 if goes_on else step))
        return goes_on

    def is_in_step(self, step: int) -> bool:
        """Whether it gets a token from a step that was launched and not read."""
        for _, first, stop in reversed(self.request.segments):
            if first <= step:
                return stop < 0 or step < stop
        return False

    def note_first(self, now_s: float) -> None:
        """The prompt's own token was read."""
        self.awaits_first = False
        _, first, stop = self.request.segments[-1]
        self.request.segments[-1] = (now_s, first, stop)

    def forget_unread(self, steps_read: int) -> None:
        """Forget a request that ends, or is retracted, before all that it produced was read; it keeps only
        what was read."""
        request = self.request
        if not request.segments:
            return
        for at in range(len(request.segments) - 1, -1, -1):
            start_s, first, stop = request.segments[at]
            if stop <= steps_read:
                break
            kept = max(first, min(stop, steps_read))
            request.produced_tokens -= stop - kept
            request.segments[at] = (start_s, first, kept)
        if self.awaits_first:
            request.produced_tokens -= 1
            request.segments.pop()
            self.awaits_first = False


@dataclass(slots=True, eq=False)
class EmulatedPrefill:
    """A prefill batch; `shape` is fixed when it is formed."""

    reqs: list[Admitted]
    shape: PrefillShape
    graph_shape: PrefillShape | None
    """The work of its captured graph, padding included; None if it runs with the standard kernel."""
    layers_launched: int = 0
    """Slices of them, where they are cut."""


@dataclass(slots=True, eq=False)
class EmulatedStep:
    """Implements LaunchedStep: a decode or fused step that was not read."""

    start: Event
    end: Event
    index: int
    """Index of the decode step, counted from the engine's start; the next step's if nothing decodes in this
    one."""
    decoding: int
    """Requests that get a token from it, without those that ended or were retracted since."""
    is_decode: bool
    ended: list[Admitted]
    """Those whose last token it is."""
    completed: list[Admitted]
    """Those whose prompt it completes."""
    prompt_tokens: int = 0
    """New tokens of prompts in it."""

    @property
    def requests(self) -> EmulatedStep:
        """The requests, for the book, which knows who is in it."""
        return self


@dataclass(slots=True)
class DecodeBatch:
    """The decoding requests. A step costs O(1): a request's last step is known when it joins."""

    members: dict[str, Admitted] = field(default_factory=dict)
    reused_tokens: int = 0
    steps: int = 0
    """Decode steps launched since the engine started; index into the log of step end times."""
    read: int = 0
    """Of these, the steps that were read."""
    _ends: list[tuple[int, int, str]] = field(default_factory=list)
    _targets: Counter[float] = field(default_factory=Counter)
    _joined: int = 0
    _max_context_member: Admitted | None = None
    """The member with the longest context; None if it was not looked for since the last change."""

    @property
    def shape(self) -> DecodeShape:
        """Batch size and the KV tokens that the next step reads."""
        bs = len(self.members)
        if not bs:
            return NO_DECODE
        return DecodeShape(
            bs=bs, reused_tokens=self.reused_tokens, max_context_tokens=self._max_context_tokens()
        )

    def shape_without(self, names: Collection[str]) -> DecodeShape:
        """The same, if these members sit the step out."""
        contexts = (c for name, c in self.contexts() if name not in names)
        return DecodeShape.of(list(contexts))

    def contexts(self) -> list[tuple[str, int]]:
        """Id and context tokens of each member."""
        steps, found = self.steps, list[tuple[str, int]]()
        for name, member in self.members.items():
            request = member.request
            produced = request.produced_tokens + steps - request.segments[-1][1]
            found.append((name, request.input_tokens + produced - 1))
        return found

    @property
    def has_several_tbt_targets(self) -> bool:
        return len(self._targets) > 1

    @property
    def tbt_target_s(self) -> float | None:
        return min(self._targets) if self._targets else None

    def in_step(self, index: int) -> Iterator[Admitted]:
        """Members that were in that step already."""
        return (m for m in self.members.values() if m.is_in_step(index))

    def join(self, member: Admitted) -> None:
        """Add a request whose own first token is under way (or its next one, after a retraction).

        The KV of its newest token is written by the next step, hence the `- 1`.
        """
        request = member.request
        self._joined += 1
        self.members[request.request_id] = member
        self.reused_tokens += request.input_tokens + request.produced_tokens - 1
        self._targets[request.planned_tbt_s] += 1
        self._max_context_member = None
        last_step = self.steps + request.output_tokens - request.produced_tokens
        heapq.heappush(self._ends, (last_step, self._joined, request.request_id))

    def may_sit_out(self, names: Collection[str]) -> list[Admitted]:
        """The members that can sit out: not one that has decoded while its first token was not read."""
        steps, found = self.steps, (self.members.get(name) for name in names)
        return [
            member
            for member in found
            if member is not None and not (member.awaits_first and member.request.segments[-1][1] < steps)
        ]

    def step(self, sitting_out: Sequence[Admitted] = ()) -> list[Admitted]:
        """A step was launched: every member but these gets one token. Returns the members for which it is the
        last; they have left already."""
        self.steps += 1
        self.reused_tokens += len(self.members) - len(sitting_out)
        for member in sitting_out:
            self._skip(member)
        if sitting_out:
            self._max_context_member = None
        ended: list[Admitted] = []
        while self._ends and self._ends[0][0] <= self.steps:
            last_step, _, request_id = heapq.heappop(self._ends)
            last = self.members.get(request_id)
            if last is not None and self._last_step(last.request) == last_step:
                self.leave(last)
                ended.append(last)
        return ended

    def _skip(self, member: Admitted) -> None:
        """A member was not in the step that was just launched: its run of tokens ends before that, and the
        next one begins behind it."""
        request, steps = member.request, self.steps
        start_s, first, _ = request.segments[-1]
        timing = steps - 1 - first
        if timing > 0:
            request.segments[-1] = (start_s, first, steps - 1)
            request.produced_tokens += timing
            member.holding.private_tokens += timing
            request.segments.append((None, steps, -1))
        else:
            request.segments[-1] = (start_s, steps, -1)
        last_step = steps + request.output_tokens - request.produced_tokens
        heapq.heappush(self._ends, (last_step, self._joined, request.request_id))
        self._joined += 1

    def leave(self, member: Admitted) -> None:
        """Remove a request, settling what it has produced with the steps launched.

        The pool counted a token per step for the whole batch; here it becomes the request's own.
        """
        request = member.request
        start_s, first, _ = request.segments[-1]
        timing = self.steps - first
        request.segments[-1] = (start_s, first, self.steps)
        request.produced_tokens += timing
        member.holding.private_tokens += timing
        self.reused_tokens -= request.input_tokens + request.produced_tokens - 1
        del self.members[request.request_id]
        self._max_context_member = None
        self._targets[request.planned_tbt_s] -= 1
        if not self._targets[request.planned_tbt_s]:
            del self._targets[request.planned_tbt_s]

    def taken_tokens(self, member: Admitted) -> int:
        """KV tokens that a member has taken since it joined."""
        return self.steps - member.request.segments[-1][1]

    def latest(self) -> Admitted:
        """The member that joined last: the first to be retracted."""
        return next(reversed(self.members.values()))

    def retarget(self) -> None:
        """Count the targets again after the requests' targets changed."""
        self._targets = Counter(member.request.planned_tbt_s for member in self.members.values())

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
