"""One request on its way through the engine: its tenant's targets and the instants of its tokens."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from pdmuxd.engine.core.quantiles import nearest_rank
from pdmuxd.engine.core.slo import RequestTargets
from pdmuxd.engine.core.types import WaitingRequest
from pdmuxd.engine.link.durations import counted
from pdmuxd.engine.link.messages import RequestRecord
from pdmuxd.engine.loop.requests import DEFAULT_TARGET, RefusalCause, Target, planned_e2e_s, waiting_entry
from pdmuxd.engine.sglang.api.types.requests import Request

TENANT_KEY = "pdmuxd_tenant"
"""In the request's custom parameters; the gateway sets it."""
_ROUNDING_S = 1e-9


@dataclass(slots=True, eq=False, kw_only=True)
class TrackedRequest:
    """A request that has not ended."""

    request: Request
    tenant: str
    arrival_s: float
    input_tokens: int
    reused_tokens: int
    """Found in the prefix cache when last looked up before the first token."""
    own_targets: RequestTargets | None = None
    """In place of its tenant's."""
    is_whole: bool = False
    """Its images are prefilled whole, by themselves."""
    ttft_target_s: float = 0.0
    tbt_target_s: float = 0.0
    """Its gaps are judged by it."""
    planned_tbt_s: float = 0.0
    """Steps are planned for it: the same, or a laxer one."""
    e2e_target_s: float | None = None
    """From its arrival to its last token; None: no target."""
    slo_version: int = 0
    is_waiting: bool = True
    prefill_start_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float = 0.0
    tokens: int = 0
    gaps_s: list[float] = field(default_factory=list)
    retractions: int = 0
    entry: WaitingRequest | None = None
    """How it looks to a policy, or looked when it was admitted."""
    target: Target = DEFAULT_TARGET
    """Its tenant's, as they are now."""
    refusal_cause: RefusalCause | None = None
    """Why it was refused."""

    def waiting_entry(self, reused_tokens: int, answer_tokens: float = 0.0) -> WaitingRequest:
        """How it looks to a policy with so many tokens in the prefix cache, and an answer of so many."""
        request = self.request
        return waiting_entry(
            self.target,
            request_id=request.rid,
            tenant=self.tenant,
            arrival_s=self.arrival_s,
            ttft_target_s=self.ttft_target_s,
            tbt_target_s=self.planned_tbt_s,
            new_tokens=max(1, len(request.origin_input_ids) + len(request.output_ids) - reused_tokens),
            reused_tokens=reused_tokens,
            has_begun=self.first_token_s is not None,
            e2e_target_s=planned_e2e_s(self.e2e_target_s, self.own_targets),
            answer_tokens=answer_tokens,
            is_whole=self.is_whole,
        )

    def record(self, outcome: str) -> RequestRecord:
        """The record of its life, once it has ended."""
        gaps_s = sorted(self.gaps_s)
        return RequestRecord(
            request_id=self.request.rid,
            tenant=self.tenant,
            outcome=outcome,
            new_tokens=self.input_tokens - self.reused_tokens,
            reused_tokens=self.reused_tokens,
            output_tokens=self.tokens,
            queue_s=_since(self.arrival_s, self.prefill_start_s),
            ttft_s=_since(self.arrival_s, self.first_token_s),
            ttft_target_s=self.ttft_target_s,
            tbt_target_s=self.tbt_target_s,
            tbt_max_s=gaps_s[-1] if gaps_s else None,
            tbt_p99_s=nearest_rank(gaps_s, 0.99),
            tbt_gaps=len(gaps_s),
            tbt_gaps_met=bisect_right(gaps_s, self.tbt_target_s + _ROUNDING_S),
            retractions=self.retractions,
            slo_version=self.slo_version,
            tbt_counts=counted(gaps_s),
            cause=self.refusal_cause or "",
            decode_s=sum(gaps_s),
            e2e_s=_since(self.arrival_s, self.last_token_s) if outcome == "finished" else None,
            e2e_target_s=self.e2e_target_s,
        )


def _since(arrival_s: float, instant_s: float | None) -> float | None:
    return None if instant_s is None else instant_s - arrival_s
