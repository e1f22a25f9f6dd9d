"""What-if over REST: what is assumed, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from stores import AdminCalls
from telemetry_feeds import HELLO, HandClock, predicting, step, telemetry

from pdmuxd.controlplane.services import ControlPlane
from pdmuxd.controlplane.status import NO_ENGINE
from pdmuxd.controlplane.telemetry.telemetry import Telemetry

PATH = "/api/v1/what-if"


@pytest.fixture
def known() -> Telemetry:
    made = telemetry(HandClock())
    made.status = lambda: replace(NO_ENGINE, state="serving", hello=HELLO)
    return made


@pytest.fixture
def call(control_plane: ControlPlane, known: Telemetry) -> AdminCalls:
    return AdminCalls(control_plane, telemetry=known, predictors=predicting)


async def test_splits_are_weighed_for_the_load_that_was_given(call: AdminCalls) -> None:
    load = {"decode_bs": 16, "decode_context_tokens": 2000, "prefill_new_tokens": 4096}

    body = (await call("POST", PATH, json={"tbt_ms": 30} | load)).json()

    assert body["assumed"] == load | {"prefill_reused_tokens": 0, "from": "request"}
    assert [(each["partition_id"], each["prefill_sms"], each["decode_sms"]) for each in body["groups"]] == [
        (1, 112, 20),
        (2, 96, 36),
    ]
    assert body["feasible"]
    chosen = next(each for each in body["groups"] if each["partition_id"] == body["chosen_partition_id"])
    assert chosen["worst_ms"] <= 30
    assert chosen["slack_ms"] == pytest.approx(30 - chosen["worst_ms"])
    assert chosen["prefill_tokens_per_s"] == pytest.approx(4096 / chosen["prefill_ms"] * 1000, rel=1e-4)


async def test_the_lowest_feasible_target_is_just_feasible_when_it_is_asked_for(call: AdminCalls) -> None:
    load = {"decode_bs": 64, "decode_context_tokens": 4000, "prefill_new_tokens": 8192}
    lowest_ms = (await call("POST", PATH, json={"tbt_ms": 5} | load)).json()["lowest_feasible_tbt_ms"]
    above, below = [
        (await call("POST", PATH, json={"tbt_ms": lowest_ms + change} | load)).json()
        for change in (0.001, -0.001)
    ]
    assert (above["feasible"], below["feasible"]) == (True, False)
    assert below["reason"] == "tbt_infeasible"


async def test_the_present_load_is_assumed_when_none_is_given(call: AdminCalls, known: Telemetry) -> None:
    assert (await call("POST", PATH, json={"tbt_ms": 30})).json()["assumed"]["from"] == "default"
    known.on_message(step(decode_bs=10, decode_reused_tokens=5000, prefill_new_tokens=3000))
    known.on_message(step(decode_bs=12, decode_reused_tokens=6000, prefill_new_tokens=0))
    present = {"decode_context_tokens": 500, "prefill_new_tokens": 3000, "prefill_reused_tokens": 0}

    assert (await call("POST", PATH, json={"tbt_ms": 30})).json()["assumed"] == present | {
        "decode_bs": 12,
        "from": "present",
    }
    mixed = (await call("POST", PATH, json={"tbt_ms": 30, "decode_bs": 99})).json()["assumed"]
    assert mixed == present | {"decode_bs": 99, "from": "mixed"}


async def test_the_guard_is_the_engines_when_its_decisions_have_shown_it(
    call: AdminCalls, known: Telemetry
) -> None:
    load = {"decode_bs": 4, "decode_context_tokens": 1024, "prefill_new_tokens": 2048}

    async def ratios() -> dict[int, float]:
        groups = (await call("POST", PATH, json={"tbt_ms": 30} | load)).json()["groups"]
        return {each["decode_sms"]: each["guard_ratio"] for each in groups}

    before = await ratios()
    known.on_message(step(guard_ratio=1.9))
    assert await ratios() == before | {36: 1.9}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "tbt_ms"),
        ({"tbt_ms": 0}, "tbt_ms"),
        ({"tbt_ms": "30"}, "tbt_ms"),
        ({"tbt_ms": 30, "decode_bs": 0}, "decode_bs"),
        ({"tbt_ms": 30, "prefill_new_tokens": 10**7}, "prefill_new_tokens"),
        ({"tbt_ms": 30, "batch": 1}, "batch"),
    ],
)
async def test_a_wrong_field_is_named_when_it_is_not_allowed(
    call: AdminCalls, body: dict[str, object], field: str
) -> None:
    answer = await call("POST", PATH, json=body)
    assert (answer.status_code, answer.json()["field"]) == (422, field)


async def test_there_is_nothing_to_ask_when_no_engine_is_known(control_plane: ControlPlane) -> None:
    answer = await AdminCalls(control_plane)("POST", PATH, json={"tbt_ms": 30})
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:pdmuxd:problem:engine-unavailable")


async def test_no_action_is_possible_when_no_daemon_runs(control_plane: ControlPlane) -> None:
    for action in ("start", "drain", "resume", "restart"):
        answer = await AdminCalls(control_plane)("POST", f"/api/v1/engine/{action}")
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:pdmuxd:problem:engine-unavailable")
