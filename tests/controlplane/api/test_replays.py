"""Replays of recent traffic over REST; the daemon's jobs have tests of their own."""

from __future__ import annotations

from dataclasses import replace

import pytest
from replay_jobs import Jobs
from stores import SLO_BODY, AdminCalls, slo
from telemetry_feeds import predicting

from pdmuxd.controlplane.node.traffic_replays import Outcome, TenantOutcome, WantedSharing
from pdmuxd.controlplane.services.control_plane import ControlPlane

PATH = "/api/v1/what-if/replays"
OUTCOME = Outcome(
    label="in force",
    policy="auto",
    requests=10,
    finished=10,
    span_s=60.0,
    goodput_per_s=0.16,
    prefill_sm_ratio=0.1,
    decode_sm_ratio=0.2,
    tenants=(
        TenantOutcome(
            tenant="chat",
            requests=10,
            finished=10,
            ttft_p50_s=0.1,
            ttft_p99_s=0.2,
            ttft_attainment_ratio=1.0,
            tbt_p99_s=0.03,
            tbt_attainment_ratio=None,
            promised_ratio=0.99,
            kept=True,
            needed_ttft_fixed_s=-0.05,
        ),
    ),
)


@pytest.fixture
def jobs() -> Jobs:
    return Jobs()


@pytest.fixture
def call(control_plane: ControlPlane, jobs: Jobs) -> AdminCalls:
    return AdminCalls(control_plane, replays=jobs, predictors=predicting)


async def test_what_is_asked_for_is_passed_on_in_seconds(call: AdminCalls, jobs: Jobs) -> None:
    variant = {
        "policy": "duet",
        "targets": {"chat": SLO_BODY},
        "tenant_scale": {"chat": 2.5},
        "rate_scale": 3,
        "sharing": {"chat": {"priority_class": "batch", "weight": 2}},
    }
    answer = await call("POST", PATH, json={"variants": [variant, {}]})
    assert (answer.status_code, answer.json()["progress_ratio"]) == (202, 0.0)
    asked, other = jobs.asked
    assert (asked.label, asked.policy, asked.rate_scale) == ("variant 1", "duet", 3.0)
    assert (asked.targets, asked.tenant_scale) == ({"chat": slo(0.04)}, {"chat": 2.5})
    assert asked.sharing == {"chat": WantedSharing(priority_class="batch", weight=2.0)}
    assert (other.label, other.policy, other.partitions) == ("variant 2", None, None)


async def test_outcomes_are_in_milliseconds(call: AdminCalls, jobs: Jobs) -> None:
    jobs.job = replace(jobs.job, state="done", done=20, outcomes=(OUTCOME,))
    told = (await call("GET", f"{PATH}/0c8b")).json()
    assert (told["progress_ratio"], told["outcomes"][0]["span_ms"]) == (1.0, 60_000.0)
    chat = told["outcomes"][0]["tenants"][0]
    assert (chat["ttft_p99_ms"], chat["tbt_attainment_ratio"], chat["needed_ttft_fixed_ms"]) == (
        200,
        None,
        -50,
    )
    assert (await call("DELETE", f"{PATH}/0c8b")).json()["state"] == "cancelled"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "variants"),
        ({"variants": []}, "variants"),
        ({"variants": [{}] * 13}, "variants"),
        ({"minutes": 0, "variants": [{}]}, "minutes"),
        ({"minutes": 1e9, "variants": [{}]}, "minutes"),
        ({"variants": [{"policy": "static:100,31"}]}, "policy"),
        ({"variants": [{"targets": {"": SLO_BODY}}]}, "targets"),
        ({"variants": [{"rate_scale": 99}]}, "variants.0.rate_scale"),
        ({"variants": [{"sharing": {"": {}}}]}, "sharing"),
        ({"variants": [{"sharing": {"chat": {"weight": 0}}}]}, "variants.0.sharing.chat.weight"),
        (
            {"variants": [{"sharing": {"chat": {"priority_class": "first"}}}]},
            "variants.0.sharing.chat.priority_class",
        ),
    ],
)
async def test_what_cannot_be_replayed_is_refused(
    call: AdminCalls, jobs: Jobs, body: dict[str, object], field: str
) -> None:
    answer = await call("POST", PATH, json=body)
    assert (answer.status_code, answer.json()["field"]) == (422, field), answer.json()
    assert jobs.asked == ()


async def test_there_is_nothing_to_replay_when_no_daemon_runs(control_plane: ControlPlane) -> None:
    call = AdminCalls(control_plane)
    assert (await call("POST", PATH, json={"variants": [{}]})).status_code == 503
    assert (await call("GET", PATH)).json() == []
