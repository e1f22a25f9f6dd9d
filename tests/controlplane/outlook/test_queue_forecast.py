"""The queue of a forecast: who goes ahead of whom."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from telemetry_feeds import HELLO, START_S, ended_request, predicting

from pdmuxd.controlplane.outlook.queue_forecast import Recent, _by_time, _rounded, forecast
from pdmuxd.controlplane.outlook.what_if import Questions
from pdmuxd.controlplane.telemetry.recent import EndedRequest, LoadSample
from pdmuxd.engine.core.policies.registry import build_policy
from pdmuxd.engine.core.slo import Slo
from pdmuxd.engine.core.types import PrefillShape


def _request(tenant: str, at_s: float, new_tokens: int) -> EndedRequest:
    return ended_request(tenant, new_tokens=new_tokens, arrived_s=START_S + at_s)


def _slo(fixed_s: float) -> Slo:
    return Slo(ttft_fixed_s=fixed_s, ttft_per_1k_new_tokens_s=0.001, tbt_s=0.1, attainment_ratio=0.9)


@pytest.mark.parametrize(
    ("policy", "spare_s", "is_in_time"),
    [("auto", 60.0, True), ("auto", 0.001, False), ("auto:fcfs", 60.0, False)],
)
def test_an_urgent_prompt_overtakes_one_that_can_wait(
    policy: str, spare_s: float, *, is_in_time: bool
) -> None:
    """`docs` sends eight long prompts, `chat` a short one in the middle of each, due after 200 ms."""
    context = predicting().context
    shape = PrefillShape.of([(15_000, 0)])
    docs_s = context.latency.prefill_s(shape, HELLO.total_sms) - 0.015 + spare_s
    requests = [_request("docs", 2.0 * number, 15_000) for number in range(8)]
    requests += [_request("chat", 2.0 * number + 0.1, 100) for number in range(8)]
    asked = Questions(build_policy(policy, context), HELLO, "made up")
    found = forecast(Recent.of(requests, []), {"docs": _slo(docs_s), "chat": _slo(0.2)}, asked).tenants
    assert found["chat"].ttft_attainment_ratio == float(is_in_time)
    if is_in_time:
        assert found["docs"].ttft_attainment_ratio == 1.0
        loose = forecast(Recent.of(requests, []), {"docs": _slo(docs_s), "chat": _slo(30.0)}, asked).tenants
        assert (loose["chat"].ttft_p50_s or 0.0) > 0.2, "with time to wait it does"


def test_a_prefill_has_the_whole_device_while_nobody_decodes() -> None:
    """A target that no split meets leaves prefill next to no SMs, but only until all wait for it."""
    context = predicting().context
    asked = Questions(build_policy("auto", context), HELLO, "made up")
    alone_s = context.latency.prefill_s(PrefillShape.of([(4000, 0)]), HELLO.total_sms)
    every_s = 1.5 * alone_s
    requests = [_request("chat", every_s * number, 4000) for number in range(60)]
    answers_s = 0.2
    requests = [msgspec.structs.replace(one, ended_s=one.arrived_s + 1.0 + answers_s) for one in requests]
    strict = replace(_slo(60.0), tbt_s=0.001)
    samples = [
        LoadSample(
            at_s=START_S + second,
            decode_bs=1,
            context_tokens=4000,
            prefill_new_tokens=4000,
            prefill_reused_tokens=0,
        )
        for second in range(10)
    ]
    found = forecast(Recent.of(requests, samples), {"chat": strict}, asked)
    assert found.tenants["chat"].ttft_p99_s is not None
    # Each waits for what is left of the answers before it, and not for a queue that grows.
    assert found.tenants["chat"].ttft_p99_s < 10 * (alone_s + answers_s)
    assert found.tenants["chat"].ttft_used == tuple(sorted(found.tenants["chat"].ttft_used))


def test_gaps_beside_long_prompts_count_by_their_time() -> None:
    assert _by_time([100] * 90 + [9000] * 10)[1:] == [_rounded(9000)] * 3
    assert _by_time([]) == [1] * 4
