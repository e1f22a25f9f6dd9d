"""The gaps between tokens, noted once per step for all requests that decode: each gets a token from it.

A request is given its share of the gaps when it leaves the batch. If a step did anything else than give each
member one token (a retraction, for example), the sum of their tokens shows it; then all members leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from operator import attrgetter

from pdmuxd.engine.sglang.api.types.requests import Request
from pdmuxd.engine.sglang.tracked_request import TrackedRequest

MAX_GAPS = 4096
"""After so many gaps all members are given theirs, since a busy batch may never be empty."""

_rid = attrgetter("rid")
_finished_reason = attrgetter("finished_reason")


class TokenGapLog:
    """Requests that got a token with the step noted last, and the gaps since the oldest of them joined."""

    def __init__(self) -> None:
        self._members: dict[str, tuple[TrackedRequest, int]] = {}
        """By id: the request, and the index of its first gap."""
        self._requests: dict[str, Request] = {}
        self._outputs: dict[str, Sequence[int]] = {}
        """The tokens of each."""
        self._tokens = 0
        """Of all members together."""
        self._gaps_s: list[float] = []
        self._last_s = 0.0

    def __len__(self) -> int:
        return len(self._members)

    def note(self, requests: Sequence[Request], now_s: float) -> list[Request]:
        """A step of these requests was read; returns those that are no members yet."""
        members = self._members
        others = [request for request in requests if request.rid not in members]
        if len(requests) - len(others) != len(members):
            present = set(map(_rid, requests))
            for request_id in [rid for rid in members if rid not in present]:
                self.leave(request_id)
        tokens = sum(map(len, self._outputs.values()))
        if tokens != self._tokens + len(members):
            for request_id in tuple(members):
                self.leave(request_id)
            others, tokens = list(requests), 0
        elif members:
            self._gaps_s.append(now_s - self._last_s)
        self._tokens, self._last_s = tokens, now_s
        if len(self._gaps_s) >= MAX_GAPS:
            self._give_all()
        return others

    def ended(self) -> list[TrackedRequest]:
        """Members that have ended with the step noted last."""
        reasons = map(_finished_reason, self._requests.values())
        return [tracked for tracked, _ in compress(self._members.values(), reasons)]

    def join(self, tracked: TrackedRequest) -> None:
        """Note that it got a token with the step that was just noted."""
        request = tracked.request
        self._members[request.rid] = tracked, len(self._gaps_s)
        self._requests[request.rid], self._outputs[request.rid] = request, request.output_ids
        self._tokens += tracked.tokens

    def leave(self, request_id: str) -> None:
        """Give a member the gaps of the steps that were noted; a request that is no member gets nothing."""
        if request_id not in self._members:
            return
        tracked, since = self._members.pop(request_id)
        del self._requests[request_id], self._outputs[request_id]
        self._give(tracked, since)
        self._tokens -= tracked.tokens
        if not self._members:
            self._gaps_s.clear()

    def _give_all(self) -> None:
        for request_id, (tracked, since) in self._members.items():
            self._give(tracked, since)
            self._members[request_id] = tracked, 0
        self._gaps_s.clear()

    def _give(self, tracked: TrackedRequest, since: int) -> None:
        gaps_s = self._gaps_s[since:]
        if gaps_s:
            tracked.gaps_s += gaps_s
            tracked.tokens += len(gaps_s)
            tracked.last_token_s = self._last_s
