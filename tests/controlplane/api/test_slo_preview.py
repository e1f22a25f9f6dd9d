"""What new targets would give, before they are promised."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from stores import SLO_BODY, AdminCalls, slo
from telemetry_feeds import HELLO, START_S, HandClock, loaded_telemetry, predicting, request_record

from pdmuxd.controlplane.node.engine_status import NO_ENGINE
from pdmuxd.controlplane.outlook.slo_preview import Previews
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.telemetry.telemetry import Telemetry

SLO = "/api/v1/tenants/chat/slo"


@pytest.fixture
def known(control_plane: ControlPlane) -> Telemetry:
    """Ten seconds of load: `chat` sends short prompts, `search` long ones, 12 requests decode."""
    control_plane.create_tenant("chat", slo(0.04))
    control_plane.create_tenant("search", slo(0.06))
    return loaded_telemetry(control_plane.directory)


@pytest.fixture
def call(control_plane: ControlPlane, known: Telemetry) -> AdminCalls:
    return AdminCalls(control_plane, telemetry=known, predictors=predicting)


async def preview(call: AdminCalls, **changes: Any) -> Any:
    answer = await call("POST", f"{SLO}/preview", json=SLO_BODY | changes)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_each_tenant_is_told_of_when_a_target_is_tried(
    call: AdminCalls, control_plane: ControlPlane
) -> None:
    told = await preview(call, tbt_ms=20, attainment_ratio=0.8)

    assert (told["verdict"], told["requests"], told["policy"]) == ("feasible", 80, "muxwise"), "ten wait"
    assert [one["tenant"] for one in told["tenants"]] == ["chat", "search"]
    chat, search = told["tenants"]
    assert chat["measured"] == {"ttft_attainment_ratio": 1.0, "tbt_attainment_ratio": 1.0}
    assert (chat["before"]["ttft_attainment_ratio"], chat["kept"]) == (1.0, True)
    assert search["after"]["ttft_p50_ms"] >= chat["after"]["ttft_p50_ms"] > 0
    assert [one["load"]["decode_bs"] for one in told["after"]["loads"]] == [12, 12]
    assert told["before"]["binding"] == [{"tenant": "chat", "time_ratio": 1.0}]
    assert control_plane.get_slo("chat").version == 1, "nothing was changed"


async def test_a_stricter_target_costs_all_prefill_when_it_binds(call: AdminCalls) -> None:
    loose, strict = await preview(call, tbt_ms=40), await preview(call, tbt_ms=11)
    assert (
        strict["after"]["loads"][0]["prefill_tokens_per_s"]
        < loose["after"]["loads"][0]["prefill_tokens_per_s"]
    )
    assert strict["after"]["prefill_busy_ratio"] > loose["after"]["prefill_busy_ratio"]
    assert strict["tenants"][1]["after"]["ttft_p50_ms"] > loose["tenants"][1]["after"]["ttft_p50_ms"]


async def test_the_other_tenant_binds_when_a_target_is_loosened_beyond_its(call: AdminCalls) -> None:
    told = await preview(call, tbt_ms=200)
    assert told["after"]["binding"] == [{"tenant": "search", "time_ratio": 1.0}]


async def test_an_infeasible_target_is_refused_unless_forced(
    call: AdminCalls, control_plane: ControlPlane
) -> None:
    body = SLO_BODY | {"tbt_ms": 1}
    refused = await call("PUT", SLO, json=body)

    problem = refused.json()
    assert (refused.status_code, problem["type"]) == (409, "urn:pdmuxd:problem:infeasible-target")
    assert problem["field"] == "tbt_ms"
    assert control_plane.get_slo("chat").version == 1
    lowest_ms = (await preview(call, tbt_ms=1))["obstacles"][0]["lowest_feasible_ms"]
    assert problem["detail"].startswith("tbt_ms 1 is infeasible: the lowest feasible is ")
    named_ms = float(problem["detail"].split(" is ")[2].split(" ms")[0])
    assert lowest_ms <= named_ms <= lowest_ms + 0.1
    assert (await call("PUT", SLO, json=SLO_BODY | {"tbt_ms": named_ms})).status_code == 200

    forced = await call("PUT", f"{SLO}?force=true", json=body)
    assert (forced.status_code, forced.json()["outlook"]["verdict"]) == (200, "infeasible")
    loosened = await call("PUT", SLO, json=SLO_BODY | {"tbt_ms": 1.5})
    assert loosened.status_code == 200, "what is no stricter than what holds is not refused"


async def test_a_ttft_is_refused_when_the_prefill_alone_takes_longer(call: AdminCalls) -> None:
    body = SLO_BODY | {"ttft_fixed_ms": 1, "ttft_per_1k_new_tokens_ms": 0}
    refused = await call("PUT", SLO, json=body)
    assert (refused.status_code, refused.json()["field"]) == (409, "ttft_fixed_ms")


async def test_a_target_of_whole_answers_is_forecast_and_refused_when_no_device_has_time_for_it(
    call: AdminCalls,
) -> None:
    none = (await preview(call))["tenants"][0]["e2e_attainment_ratio"]
    loose = await preview(call, e2e_ms=600_000)
    tight = await preview(call, e2e_ms=1)
    assert (none, loose["tenants"][0]["e2e_attainment_ratio"]) == (None, 1.0)
    assert "whole answers 100.0%" in loose["text"]
    assert (tight["verdict"], tight["tenants"][0]["e2e_attainment_ratio"]) == ("infeasible", 0.0)
    lowest_ms = tight["obstacles"][0]["lowest_feasible_ms"]
    assert lowest_ms > 1
    refused = await call("PUT", SLO, json=SLO_BODY | {"e2e_ms": 1})
    assert (refused.status_code, refused.json()["field"]) == (409, "e2e_ms")
    assert (await call("PUT", f"{SLO}?force=true", json=SLO_BODY | {"e2e_ms": 1})).status_code == 200
    assert (await call("PUT", SLO, json=SLO_BODY | {"e2e_ms": 2})).status_code == 200, "it is laxer"


async def test_an_overload_is_at_risk_when_requests_wait_for_each_other(
    call: AdminCalls, known: Telemetry, control_plane: ControlPlane
) -> None:
    for number in range(400):
        record = {"request_id": f"x{number}", "tenant": "search", "new_tokens": 16_000}
        known.recent.on_request(request_record(**record), arrived_s=START_S, now_s=START_S + 30.0)
    told = await preview(call, tbt_ms=30)
    assert told["verdict"] == "at_risk"
    assert "chat is predicted to miss" in told["text"]


async def test_those_who_wait_count_when_they_have_not_ended(call: AdminCalls, known: Telemetry) -> None:
    before = await preview(call)
    for number in range(100):
        known.on_begin(f"w{number}", tenant="search", path="/")
    after = await preview(call)
    assert after["requests"] == before["requests"] + 100
    assert after["after"]["prefill_busy_ratio"] > before["after"]["prefill_busy_ratio"]


async def test_a_lone_request_is_assumed_when_nothing_has_run(call: AdminCalls, known: Telemetry) -> None:
    known.clock.turn(1000.0)  # type: ignore[attr-defined]
    told = await preview(call, tbt_ms=20, attainment_ratio=0.8)
    assert (told["verdict"], told["requests"]) == ("feasible", 0)
    assert told["after"]["loads"][0]["load"]["from"] == "default"
    assert (await call("PUT", SLO, json=SLO_BODY | {"tbt_ms": 1})).status_code == 409


async def test_a_target_is_taken_unasked_when_no_engine_is_known(control_plane: ControlPlane) -> None:
    control_plane.create_tenant("chat", slo(0.04))
    call = AdminCalls(control_plane)
    assert (await preview(call, tbt_ms=1))["verdict"] == "unknown"
    assert (await call("PUT", SLO, json=SLO_BODY | {"tbt_ms": 1})).json()["outlook"] is None


def test_edits_in_a_row_are_only_checked_for_feasibility(known: Telemetry) -> None:
    ticks = iter(range(1000))
    previews = Previews(known, predicting, clock=lambda: next(ticks))
    assert len(previews.of_edit("chat", slo(0.03), slo(0.04)).tenants) == 2
    assert previews.of_edit("chat", slo(0.03), slo(0.04)).tenants == ()
    assert previews.of_edit("chat", slo(0.001), slo(0.04)).verdict == "infeasible"


async def test_a_stale_version_is_told_before_anything_is_predicted(call: AdminCalls) -> None:
    answer = await call("PUT", SLO, json=SLO_BODY | {"tbt_ms": 1}, headers={"If-Match": '"9"'})
    assert answer.status_code == 412


async def test_what_a_strict_target_costs_is_told_when_it_binds(
    call: AdminCalls, control_plane: ControlPlane, known: Telemetry
) -> None:
    control_plane.set_slo("chat", slo(0.011))
    known.on_directory(control_plane.directory)
    answer = await call("GET", "/api/v1/what-if/tbt-costs")
    assert answer.status_code == 200, answer.text
    (cost,) = answer.json()
    assert (cost["tenant"], cost["tbt_ms"], cost["others_tbt_ms"]) == ("chat", 11.0, 60.0)
    assert cost["time_ratio"] == 1.0
    assert cost["prefill_ratio"] > 0.0
    told = cost["prefill_busy_ratio"] - cost["prefill_busy_ratio_without"]
    assert cost["prefill_ratio"] == pytest.approx(told, abs=1e-3)
    assert (cost["max_tbt_cost_ratio"], cost["capped_since"], cost["planned_tbt_ms"]) == (None, None, 11.0)


async def test_a_strict_target_costs_something_when_there_is_more_work_than_time(
    call: AdminCalls, control_plane: ControlPlane, known: Telemetry
) -> None:
    control_plane.set_slo("chat", slo(0.011))
    known.on_directory(control_plane.directory)
    for number in range(900):
        record = {"request_id": f"x{number}", "tenant": "search", "new_tokens": 16_000}
        known.recent.on_request(request_record(**record), arrived_s=START_S, now_s=START_S + 30.0)
    (cost,) = (await call("GET", "/api/v1/what-if/tbt-costs")).json()
    assert cost["prefill_busy_ratio"] == 1.0
    assert cost["prefill_busy_ratio_without"] < 1.0
    assert cost["prefill_ratio"] > 0.0


async def test_no_cost_is_told_when_nobody_has_sent_anything(control_plane: ControlPlane) -> None:
    made = Telemetry(clock=HandClock())
    made.status = lambda: replace(NO_ENGINE, state="serving", hello=HELLO)
    made.on_directory(control_plane.directory)
    answer = await AdminCalls(control_plane, telemetry=made, predictors=predicting)(
        "GET", "/api/v1/what-if/tbt-costs"
    )
    assert (answer.status_code, answer.json()) == (200, [])
