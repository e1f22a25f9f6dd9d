"""What a target of whole answers would give, by requests that ended."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from observations import linear_context
from telemetry_feeds import ended_request

from pdmuxd.controlplane.outlook.whole_answers import e2e_share, lowest_e2e_s
from pdmuxd.controlplane.telemetry.recent import EndedRequest
from pdmuxd.engine.core.slo import Slo


def slo(e2e_s: float | None) -> Slo:
    return Slo(ttft_fixed_s=1.0, ttft_per_1k_new_tokens_s=1.0, tbt_s=0.05, attainment_ratio=0.9, e2e_s=e2e_s)


def ended(
    *, tenant: str = "a", output_tokens: int = 101, ttft_s: float | None = 1.0, took_s: float = 5.0
) -> EndedRequest:
    return ended_request(
        tenant, new_tokens=1000, arrived_s=100.0, took_s=took_s, output_tokens=output_tokens, ttft_s=ttft_s
    )


@pytest.mark.parametrize(
    ("e2e_s", "share"),
    [
        (None, None),
        (6.0, 1.0),  # it took 5 s
        (4.0, 1.0),  # with tokens every 25 ms it is whole after 3.5 s
        (3.4, 0.0),  # no pace is planned that is stricter
    ],
)
def test_answers_are_as_they_were_or_as_fast_as_steps_would_be_planned(e2e_s, share) -> None:
    requests = [ended(), ended(tenant="b", took_s=500.0), ended(ttft_s=None, output_tokens=0)]
    assert e2e_share(requests, "a", slo(e2e_s)) == share


def test_nothing_is_said_of_a_tenant_without_answers() -> None:
    assert e2e_share([ended(ttft_s=None, output_tokens=0)], "a", slo(5.0)) is None
    assert e2e_share([], "a", slo(5.0)) is None


def test_the_lowest_target_is_what_the_promised_share_takes_alone() -> None:
    policy = SimpleNamespace(
        context=linear_context(), table=SimpleNamespace(rules=SimpleNamespace(total_sms=132))
    )
    asked = SimpleNamespace(policy=policy)
    requests = [ended(output_tokens=tokens) for tokens in (101, 101, 101, 1001)]
    # 1 ms for each prompt token, and for each step of one request.
    assert lowest_e2e_s(asked, requests, "a", 0.75) == pytest.approx(1.1)
    assert lowest_e2e_s(asked, requests, "a", 0.9) == pytest.approx(2.0)
    assert lowest_e2e_s(asked, [], "a", 0.9) is None
