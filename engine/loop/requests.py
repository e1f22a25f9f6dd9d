"""What the loop needs to know of requests. Each device keeps them in its own way: SGLang's objects are looked
at, the emulated engine's cost constant time per step whatever the batch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

from pdmuxd.engine.core.slo import (
    DEFAULT_LATE_ACTION,
    DEFAULT_PRIORITY_CLASS,
    DEFAULT_SLO,
    DEFAULT_WEIGHT,
    LateAction,
    PriorityClass,
    RequestTargets,
    Slo,
)
from pdmuxd.engine.core.types import WaitingRequest
from pdmuxd.engine.core.whole_answers import first_token_due_s, pace_s
from pdmuxd.engine.loop.answers import AnswerLengths

MAX_WAIT_TARGETS = 5.0
"""Of its TTFT target that a request waits at most: what comes later is of no use to whom the target serves,
and past capacity the queue would grow without end."""
MIN_MAX_WAIT_S = 60.0
"""Yet so long at least: clients wait for a minute as a rule."""
AT_ONCE_TOKENS = 512
"""A prompt with as many tokens that the prefix cache does not hold yet enters it when its answer begins, a
shorter one when that ends: inserting takes SGLang's scheduler 0.35 ms, computing so many tokens anew takes
the device 12 ms (one H100, docs/measurements/h100.md, 2026-11-27)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A tenant's objectives, the version of the edit that set them, and its part of the device."""

    slo: Slo
    version: int
    priority_class: PriorityClass = DEFAULT_PRIORITY_CLASS
    weight: float = DEFAULT_WEIGHT
    max_wait_s: float | None = None
    """The longest wait for the start of a prefill; None: MAX_WAIT_TARGETS times the TTFT target, at least
    MIN_MAX_WAIT_S."""
    late_action: LateAction = DEFAULT_LATE_ACTION
    tbt_floor_s: float = 0.0
    """Steps are planned for no stricter TBT target than this."""

    def slo_of(self, own: RequestTargets | None) -> Slo:
        """The objectives of a request that may have targets of its own."""
        return self.slo if own is None else own.applied_to(self.slo)

    def planned_tbt_s(self, slo: Slo) -> float:
        """The TBT target that steps are planned for; gaps are judged by that of `slo`."""
        return max(slo.tbt_s, self.tbt_floor_s)

    def pace_s(
        self, slo: Slo, *, taken_s: float, answer_tokens: float, own: RequestTargets | None = None
    ) -> float:
        """The same for a request that decodes, `taken_s` after it arrived: stricter where its whole answer
        would be late else, though never than the floor."""
        planned_s, e2e_s = self.planned_tbt_s(slo), planned_e2e_s(slo.e2e_s, own)
        if e2e_s is None:
            return planned_s
        pace = pace_s(left_s=e2e_s - taken_s, tokens=answer_tokens, tbt_s=planned_s)
        return max(pace, self.tbt_floor_s)

    def expires_s(self, arrival_s: float, ttft_target_s: float) -> float:
        """The instant until which a request may wait."""
        if self.max_wait_s is not None:
            return arrival_s + self.max_wait_s
        return arrival_s + max(MIN_MAX_WAIT_S, MAX_WAIT_TARGETS * ttft_target_s)


DEFAULT_TARGET = Target(slo=DEFAULT_SLO, version=0)


def enters_cache_at_once(new_tokens: int) -> bool:
    """Whether a prompt, of which the prefix cache does not hold so many tokens, enters it as its answer
    begins."""
    return new_tokens >= AT_ONCE_TOKENS


def planned_e2e_s(e2e_s: float | None, own: RequestTargets | None) -> float | None:
    """The target of a whole answer that is planned for: of a session's time, this call's part."""
    return e2e_s if e2e_s is None or own is None else e2e_s * own.e2e_share


def waiting_entry(
    target: Target,
    *,
    request_id: str,
    tenant: str,
    arrival_s: float,
    ttft_target_s: float,
    tbt_target_s: float,
    new_tokens: int,
    reused_tokens: int,
    has_begun: bool,
    e2e_target_s: float | None = None,
    answer_tokens: float = 0.0,
    is_whole: bool = False,
) -> WaitingRequest:
    """How a request looks to a policy, with its tenant's part of the device as it is now.

    `has_begun`: it has got tokens, so it goes on however late it is. `answer_tokens`: that it is expected to
    have; used where its whole answer has a target.
    """
    due_s = ttft_target_s
    if e2e_target_s is not None:
        due_s = first_token_due_s(
            ttft_target_s=ttft_target_s,
            e2e_target_s=e2e_target_s,
            tokens=answer_tokens,
            tbt_s=tbt_target_s,
        )
    return WaitingRequest(
        request_id=request_id,
        tenant=tenant,
        arrival_s=arrival_s,
        deadline_s=arrival_s + due_s,
        ttft_deadline_s=None if due_s == ttft_target_s else arrival_s + ttft_target_s,
        new_tokens=new_tokens,
        reused_tokens=reused_tokens,
        tbt_target_s=tbt_target_s,
        priority_class=target.priority_class,
        weight=target.weight,
        refuses_late=target.late_action == "refuse" and not has_begun,
        expires_s=math.inf if has_begun else target.expires_s(arrival_s, ttft_target_s),
        is_whole=is_whole,
    )


def as_admitted(entry: WaitingRequest, now_s: float) -> WaitingRequest:
    """An entry whose prefill begins: one that is too late for its whole answer is due by its TTFT target, and
    is not taken for lost by those that may overtake it."""
    if entry.ttft_deadline_s is None or entry.deadline_s > now_s:
        return entry
    return replace(entry, deadline_s=entry.ttft_deadline_s, ttft_deadline_s=None)


class RefusalCause(StrEnum):
    """Why the engine ends a request that it has not begun."""

    DEADLINE_UNREACHABLE = "deadline_unreachable"
    """Its first token would come too late, and its tenant wants to know that at once."""
    MAX_WAIT = "max_wait"
    """It has waited for as long as its tenant, or else the engine, lets any request wait."""


def refusal_message(cause: RefusalCause) -> str:
    """What its client is told; the cause is in it as a word of its own."""
    why = {
        RefusalCause.DEADLINE_UNREACHABLE: "its first token would come after its target",
        RefusalCause.MAX_WAIT: "it has waited in the queue for as long as it may",
    }
    return f"{cause.value}: the engine has not begun this request, since {why[cause]}"


class RequestBook(Protocol):
    """Requests from their arrival to their one end (invariant 5); `requests` are the device's own objects."""

    answers: AnswerLengths
    """How many tokens each tenant's answers have."""
    prompt_tokens: int
    """Of requests that got their first token; like the next three, since the start."""
    reused_prompt_tokens: int
    """Of these, found in the prefix cache."""
    output_tokens: int
    retractions: int

    def __len__(self) -> int:
        """Requests that have not ended."""

    def awaiting_first_token(self) -> Iterator[tuple[str, float, float]]:
        """Tenant, arrival and TTFT target of each request that has no token yet."""

    def watch(self, waiting: Any, now_s: float) -> None:
        """Compare the waiting queue with the last one seen."""

    def entry(self, request: Any) -> WaitingRequest | None:
        """How a request looks to a policy, or looked when it was admitted."""

    def window(self, size: int) -> tuple[WaitingRequest, ...]:
        """Each tenant's first entries in arrival order, the deprioritized behind (engine/loop/waiting.py)."""

    def deprioritize(self, request_ids: Iterable[str]) -> None:
        """Show these behind all others from now on."""

    def expired(self, now_s: float) -> list[tuple[str, RefusalCause]]:
        """Requests that wait, have no token yet, and are to be refused by their own tenant's rules: after its
        longest wait, or past its deadline."""

    def refused(self, refusals: Iterable[tuple[str, RefusalCause]], now_s: float) -> None:
        """Note that these were refused: the engine ends them with an error that names the cause."""

    def admitted(self, request_ids: Iterable[str], now_s: float) -> tuple[WaitingRequest, ...]:
        """Note that these hold KV from now on; their entries as admitted."""

    def without_new(self, request_ids: Iterable[str]) -> tuple[str, ...]:
        """The ones of these that may look different since they were last looked up in the prefix cache."""

    def look_up(self, request_ids: Iterable[str]) -> bool:
        """Look these up in the prefix cache again; whether that changed how any of them looks."""

    def retarget(self, targets: Mapping[str, Target]) -> None:
        """Put changed targets in force for every request that has not ended."""

    def tbt_target_s(self, decoding: Any, joining: Sequence[Any] = ()) -> float | None:
        """The strictest target of those that decode and are about to; None if there are none."""

    def has_several_tbt_targets(self, decoding: Any) -> bool:
        """Whether those that decode have different TBT targets."""

    def tbt_targets_s(self, request_ids: Iterable[str]) -> list[float | None]:
        """The TBT target of each; None for one that has ended."""

    def slots_held(self) -> Mapping[str, int]:
        """Requests that hold KV, by tenant."""

    def give_step(self, requests: Any, now_s: float) -> None:
        """A decode or fused step of these was read."""

    def give_tokens(self, requests: Iterable[Any], now_s: float) -> object:
        """Note that these have got tokens otherwise, or have ended."""
