"""Every request the loop knows: its tenant's targets, the instants of its tokens, and how it ended.

The engine's own request objects are read for identifiers and counts only (`rid`, `origin_input_ids`,
`output_ids`, `finished()`, `finished_reason`, `sampling_params.custom_params`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pdmuxd.engine.core.slo import DEFAULT_SLO, Slo
from pdmuxd.engine.core.types import WaitingRequest
from pdmuxd.engine.link.messages import RequestRecord

TENANT_KEY = "pdmuxd_tenant"
"""In the request's custom parameters; the gateway sets it."""
_ROUNDING_S = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A tenant's objectives and the version of the edit that set them."""

    slo: Slo
    version: int


DEFAULT_TARGET = Target(slo=DEFAULT_SLO, version=0)


@dataclass(slots=True, eq=False, kw_only=True)
class Tracked:
    """A request that has not ended."""

    request: Any
    tenant: str
    arrival_s: float
    input_tokens: int
    reused_tokens: int
    """Found in the prefix cache when last looked up before the first token."""
    ttft_target_s: float = 0.0
    tbt_target_s: float = 0.0
    slo_version: int = 0
    is_waiting: bool = True
    is_demoted: bool = False
    prefill_start_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float = 0.0
    tokens: int = 0
    gaps_s: list[float] = field(default_factory=list)
    retractions: int = 0
    entry: WaitingRequest | None = None
    """How it looks to a policy, or looked when it was admitted."""


class Ledger:
    """Requests by id, from arrival to end (invariant 5)."""

    def __init__(
        self, reused_tokens: Callable[[Any], int], on_end: Callable[[RequestRecord], object]
    ) -> None:
        self._reused_tokens = reused_tokens
        self._on_end = on_end
        self._targets: Mapping[str, Target] = {}
        self._tracked: dict[str, Tracked] = {}
        self._waiting: tuple[Any, ...] = ()
        self.prompt_tokens = 0
        self.reused_prompt_tokens = 0
        self.output_tokens = 0
        self.retractions = 0

    def __len__(self) -> int:
        return len(self._tracked)

    def get(self, request_id: str) -> Tracked | None:
        """A request that has not ended."""
        return self._tracked.get(request_id)

    def watch(self, waiting: Sequence[Any], now_s: float) -> None:
        """Compare the engine's waiting queue with the last one seen: arrivals, retractions, aborts."""
        if len(waiting) == len(self._waiting) and all(map(_same, waiting, self._waiting)):
            return
        present = {request.rid for request in waiting}
        for request in self._waiting:
            tracked = self._tracked.get(request.rid)
            if tracked is not None and tracked.is_waiting and request.rid not in present:
                self._end(tracked, "aborted")
        for request in waiting:
            tracked = self._tracked.get(request.rid)
            if tracked is None:
                self._arrive(request, now_s)
            elif not tracked.is_waiting:
                tracked.is_waiting = True
                tracked.retractions += 1
                self.retractions += 1
                self.refresh(tracked)
        self._waiting = tuple(waiting)

    def released(self, request: Any, now_s: float) -> None:
        """The engine lets go of an aborted request; one that came and went between two looks ends here."""
        if request.rid not in self._tracked:
            self._arrive(request, now_s)
            self._end(self._tracked[request.rid], "aborted")

    def window(self, waiting: Sequence[Any], size: int) -> tuple[WaitingRequest, ...]:
        """The first entries in arrival order, the demoted behind; an eighth is kept for these."""
        first: list[WaitingRequest] = []
        last: list[WaitingRequest] = []
        for request in waiting:
            tracked = self._tracked[request.rid]
            if tracked.entry is not None:
                (last if tracked.is_demoted else first).append(tracked.entry)
            if len(first) >= size and len(last) >= size // 8:
                break
        kept = min(len(last), size // 8)
        shown = first[: size - kept]
        return (*shown, *last[: size - len(shown)])

    def demote(self, request_ids: Iterable[str]) -> None:
        """Show these behind all others from now on."""
        for request_id in request_ids:
            tracked = self._tracked.get(request_id)
            if tracked is not None:
                tracked.is_demoted = True

    def admitted(self, request_ids: Iterable[str], now_s: float) -> tuple[WaitingRequest, ...]:
        """These hold KV from now on; their entries as admitted."""
        entries: list[WaitingRequest] = []
        for request_id in request_ids:
            tracked = self._tracked.get(request_id)
            if tracked is None:
                continue
            tracked.is_waiting = False
            if tracked.prefill_start_s is None:
                tracked.prefill_start_s = now_s
            if tracked.entry is not None:
                entries.append(tracked.entry)
        self._waiting = tuple(r for r in self._waiting if (t := self.get(r.rid)) and t.is_waiting)
        return tuple(entries)

    def refresh(self, tracked: Tracked) -> bool:
        """Look a waiting request up in the cache again; whether that changed how it looks."""
        reused = self._reused_tokens(tracked.request)
        if tracked.first_token_s is None:
            tracked.reused_tokens = reused
            self._set_target(tracked)
        before = tracked.entry
        tracked.entry = _entry(tracked, reused)
        return before is None or before.reused_tokens != reused

    def retarget(self, targets: Mapping[str, Target]) -> None:
        """Put changed targets in force for every request that has not ended; looks nothing up."""
        self._targets = targets
        for tracked in self._tracked.values():
            self._set_target(tracked)
            tracked.is_demoted = False
            if tracked.is_waiting and tracked.entry is not None:
                tracked.entry = _entry(tracked, tracked.entry.reused_tokens)

    def tbt_target_s(self, requests: Iterable[Any]) -> float | None:
        """The strictest target among these; None if there are none."""
        known = (self._tracked.get(request.rid) for request in requests)
        return min((tracked.tbt_target_s for tracked in known if tracked is not None), default=None)

    def give_tokens(self, requests: Iterable[Any], now_s: float) -> None:
        """A step was read: note the tokens that these got, and end who is done."""
        for request in requests:
            tracked = self._tracked.get(request.rid)
            if tracked is None:
                continue
            produced = len(request.output_ids)
            if produced > tracked.tokens:
                self._token(tracked, produced, now_s)
            if request.finished():
                aborted = type(request.finished_reason).__name__ == "FINISH_ABORT"
                self._end(tracked, "aborted" if aborted else "finished")

    def _arrive(self, request: Any, now_s: float) -> None:
        custom = getattr(request.sampling_params, "custom_params", None) or {}
        tracked = Tracked(
            request=request,
            tenant=str(custom.get(TENANT_KEY, "")),
            arrival_s=now_s,
            input_tokens=len(request.origin_input_ids),
            reused_tokens=0,
        )
        self._tracked[request.rid] = tracked
        self.refresh(tracked)

    def _set_target(self, tracked: Tracked) -> None:
        target = self._targets.get(tracked.tenant, DEFAULT_TARGET)
        new_tokens = tracked.input_tokens - tracked.reused_tokens
        tracked.ttft_target_s = target.slo.ttft_target_s(new_tokens)
        tracked.tbt_target_s = target.slo.tbt_s
        tracked.slo_version = target.version

    def _token(self, tracked: Tracked, produced: int, now_s: float) -> None:
        self.output_tokens += produced - tracked.tokens
        if tracked.first_token_s is None:
            tracked.first_token_s = now_s
            self.prompt_tokens += tracked.input_tokens
            self.reused_prompt_tokens += tracked.reused_tokens
        else:
            tracked.gaps_s.append(now_s - tracked.last_token_s)
        tracked.tokens = produced
        tracked.last_token_s = now_s

    def _end(self, tracked: Tracked, outcome: str) -> None:
        del self._tracked[tracked.request.rid]
        gaps_s = sorted(tracked.gaps_s)
        self._on_end(
            RequestRecord(
                request_id=tracked.request.rid,
                tenant=tracked.tenant,
                outcome=outcome,
                new_tokens=tracked.input_tokens - tracked.reused_tokens,
                reused_tokens=tracked.reused_tokens,
                output_tokens=tracked.tokens,
                queue_s=_since(tracked.arrival_s, tracked.prefill_start_s),
                ttft_s=_since(tracked.arrival_s, tracked.first_token_s),
                ttft_target_s=tracked.ttft_target_s,
                tbt_target_s=tracked.tbt_target_s,
                tbt_max_s=gaps_s[-1] if gaps_s else None,
                tbt_p99_s=gaps_s[(len(gaps_s) * 99 - 1) // 100] if gaps_s else None,
                tbt_gaps=len(gaps_s),
                tbt_gaps_met=sum(gap <= tracked.tbt_target_s + _ROUNDING_S for gap in gaps_s),
                retractions=tracked.retractions,
                slo_version=tracked.slo_version,
            )
        )


def _entry(tracked: Tracked, reused_tokens: int) -> WaitingRequest:
    request = tracked.request
    return WaitingRequest(
        request_id=request.rid,
        tenant=tracked.tenant,
        arrival_s=tracked.arrival_s,
        deadline_s=tracked.arrival_s + tracked.ttft_target_s,
        new_tokens=max(1, len(request.origin_input_ids) + len(request.output_ids) - reused_tokens),
        reused_tokens=reused_tokens,
        tbt_target_s=tracked.tbt_target_s,
    )


def _same(a: object, b: object) -> bool:
    return a is b


def _since(arrival_s: float, instant_s: float | None) -> float | None:
    return None if instant_s is None else instant_s - arrival_s
