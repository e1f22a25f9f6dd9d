"""What a target of whole answers would give, by the requests of the last minutes."""

from __future__ import annotations

from collections.abc import Sequence

from pdmuxd.controlplane.outlook.what_if import Questions
from pdmuxd.controlplane.telemetry.recent import EndedRequest
from pdmuxd.engine.core.quantiles import nearest_rank
from pdmuxd.engine.core.slo import Slo
from pdmuxd.engine.core.types import DecodeShape
from pdmuxd.engine.core.whole_answers import pace_s


def e2e_share(requests: Sequence[EndedRequest], tenant: str, slo: Slo) -> float | None:
    """The share of a tenant's whole answers that would be in time: its first tokens as they came, the others
    as fast as they came or as steps would be planned for. None without a target or without answers."""
    answered = [] if slo.e2e_s is None else _answered(requests, tenant)
    if slo.e2e_s is None or not answered:
        return None
    usual = sum(one.output_tokens for one, _ in answered) / len(answered)
    met = 0
    for one, ttft_s in answered:
        pace = pace_s(left_s=slo.e2e_s - ttft_s, tokens=usual, tbt_s=slo.tbt_s)
        decode_s = min(one.ended_s - one.arrived_s - ttft_s, (one.output_tokens - 1) * pace)
        met += ttft_s + max(0.0, decode_s) <= slo.e2e_s
    return met / len(answered)


def lowest_e2e_s(
    asked: Questions, requests: Sequence[EndedRequest], tenant: str, ratio: float
) -> float | None:
    """What this share of the tenant's answers takes on a device of their own; None without answers."""
    policy = asked.policy
    latency, sms = policy.context.latency, policy.table.rules.total_sms
    alone_s = [
        latency.request_s(max(1, one.new_tokens), one.reused_tokens, sms)
        + (one.output_tokens - 1)
        * latency.decode_s(DecodeShape.of([one.new_tokens + one.reused_tokens + one.output_tokens // 2]), sms)
        for one, _ in _answered(requests, tenant)
    ]
    return nearest_rank(alone_s, ratio)


def _answered(requests: Sequence[EndedRequest], tenant: str) -> list[tuple[EndedRequest, float]]:
    """Answers with their times to first token."""
    return [
        (one, one.ttft_s)
        for one in requests
        if one.tenant == tenant and one.ttft_s is not None and one.output_tokens
    ]
