"""What-if over REST: what is assumed, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from observations import observe, waiting
from stores import AdminCalls
from telemetry_feeds import HELLO, HandClock, predicting, step, telemetry

from pdmuxd.controlplane.node.engine_status import NO_ENGINE
from pdmuxd.controlplane.outlook.what_if import FIXED_FOR_NOW, Predicting
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.engine.core.policies.registry import build_policy
from pdmuxd.engine.core.types import Decision, EngineLimits, Mode
from pdmuxd.engine.emulator.profile import load_profile

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


def asking(policy: str, **changes: object) -> Predicting:
    """`policy` on the H200, by its shipped profile."""
    context = replace(load_profile("h200-llama-8b").policy_context, **changes)
    return Predicting(name="h200-llama-8b", policy=policy, context=context)


def decided(asked: Predicting, body: dict[str, Any]) -> Decision:
    """What the policy decides when it observes the load of an answer."""
    policy, load = build_policy(asked.policy, asked.context), body["assumed"]
    bs, context = load["decode_bs"], load["decode_context_tokens"]
    prompt = waiting(
        1, load["prefill_new_tokens"], deadline_s=1e6, reused_tokens=load["prefill_reused_tokens"]
    )
    obs = observe(
        partition_id=policy.table.decode_only,
        decode_bs=bs,
        decode_reused_tokens=bs * context,
        tbt_target_s=body["tbt_ms"] / 1000.0,
        queue=(prompt,),
        limits=EngineLimits(max_decode_bs=1024),
        now_s=1.0,
    )
    obs = replace(obs, decode=replace(obs.decode, max_context_tokens=context))
    return policy.decide(obs, policy.initial_state())[0]


@pytest.mark.parametrize("policy", ["auto", "muxwise", "drift", "duet", "upstream", "static:96,36"])
@pytest.mark.parametrize("delivery_s", [0.0, 0.002])
async def test_the_answer_is_what_the_policy_in_force_decides(
    control_plane: ControlPlane, known: Telemetry, policy: str, delivery_s: float
) -> None:
    asked = asking(policy, delivery_s=delivery_s)
    call = AdminCalls(control_plane, telemetry=known, predictors=lambda: asked)
    for tbt_ms in (6, 11, 20, 21, 50):
        for decode_bs, new_tokens in ((8, 300), (64, 2048), (64, 16_000), (128, 2048)):
            load = {"decode_bs": decode_bs, "decode_context_tokens": 1500, "prefill_new_tokens": new_tokens}
            body = (await call("POST", PATH, json={"tbt_ms": tbt_ms} | load)).json()
            decision = decided(asked, body)
            assert (body["policy"], body["mode"]) == (policy, decision.mode)
            if decision.mode is Mode.FUSED:
                assert body["chosen_partition_id"] is None
                assert body["fused"]["token_budget"] == min(decision.token_budget - decode_bs, new_tokens)
            else:
                begins = decision.partition_id if decision.admit else None  # it may wait for a slot in time
                assert body["chosen_partition_id"] == begins
                assert body["reason"] == decision.reason
                assert body["groups"], "what each split would take is told all the same"


async def test_a_target_that_only_the_delivery_makes_too_strict_is_told_as_that(
    control_plane: ControlPlane, known: Telemetry
) -> None:
    load = {"decode_bs": 2, "decode_context_tokens": 12_000, "prefill_new_tokens": 22_000}
    at_once, late = (asking("muxwise", delivery_s=seconds) for seconds in (0.0, 0.004))
    late = replace(late, context=replace(late.context, delivery_share=0.5))
    texts = []
    for asked in (at_once, late):
        call = AdminCalls(control_plane, telemetry=known, predictors=lambda asked=asked: asked)
        texts.append((await call("POST", PATH, json={"tbt_ms": 10} | load)).json()["text"])
    assert "no split meets it" in texts[1]
    assert texts[1].endswith(" of 10 ms, of which the delivery takes 4 ms")
    assert "no split" not in texts[0]


async def test_fused_steps_are_sized_as_the_policy_sizes_them(
    control_plane: ControlPlane, known: Telemetry
) -> None:
    """`auto` plans with the size of a step's graph and with what few steps exceed, not with round budgets."""
    asked = asking("auto")
    call = AdminCalls(control_plane, telemetry=known, predictors=lambda: asked)
    load = {"decode_bs": 32, "decode_context_tokens": 1250, "prefill_new_tokens": 600}
    body = (await call("POST", PATH, json={"tbt_ms": 15} | load)).json()
    assert (body["mode"], body["feasible"]) == ("fused", True)
    assert body["fused"]["token_budget"] == 480
    assert body["fused"]["worst_ms"] <= 15
    assert "fused steps of 480 prompt tokens" in body["text"]
    assert body["groups"], "the splits are told, too"


async def test_nothing_is_fused_when_the_policy_only_splits(call: AdminCalls) -> None:
    fused = (await call("POST", PATH, json={"tbt_ms": 50})).json()["fused"]
    assert fused == {"meets": False, "token_budget": 0, "worst_ms": None, "prefill_tokens_per_s": None}


async def test_a_policy_of_one_stream_has_no_splits(control_plane: ControlPlane, known: Telemetry) -> None:
    call = AdminCalls(control_plane, telemetry=known, predictors=lambda: asking("chunked:512"))
    loose = (await call("POST", PATH, json={"tbt_ms": 50})).json()
    strict = (await call("POST", PATH, json={"tbt_ms": 5})).json()
    assert (loose["groups"], loose["chosen_partition_id"]) == ([], None)
    assert (loose["feasible"], strict["feasible"]) == (True, False)
    assert strict["text"].startswith("it is missed, fused steps of 504 prompt tokens: worst case ")
    assert 5 < loose["lowest_feasible_tbt_ms"] < 50


async def test_the_recent_load_is_assumed_when_none_is_given(call: AdminCalls, known: Telemetry) -> None:
    assert (await call("POST", PATH, json={"tbt_ms": 30})).json()["assumed"]["from"] == "default"
    for second in range(10):
        bs = 100 if second == 7 else 10 + second
        new_tokens = 3000 if second % 2 else 0
        load = {"decode_bs": bs, "decode_reused_tokens": 500 * bs, "prefill_new_tokens": new_tokens}
        known.on_message(step(now_s=float(second), **load))
        known.clock.turn(1.0)  # type: ignore[attr-defined]
    usual = {"decode_context_tokens": 500, "prefill_new_tokens": 3000, "prefill_reused_tokens": 0}

    answer = (await call("POST", PATH, json={"tbt_ms": 30})).json()
    assert answer["assumed"] == usual | {"decode_bs": 14, "from": "recent"}, "the median, not the last"
    assert answer["busy"]["assumed"] == usual | {"decode_bs": 19, "from": "recent"}
    assert answer["busy"]["lowest_feasible_tbt_ms"] >= answer["lowest_feasible_tbt_ms"]
    mixed = (await call("POST", PATH, json={"tbt_ms": 30, "decode_bs": 99})).json()["assumed"]
    assert mixed == usual | {"decode_bs": 99, "from": "mixed"}
    known.clock.turn(400.0)  # type: ignore[attr-defined]
    assert (await call("POST", PATH, json={"tbt_ms": 30})).json()["assumed"]["from"] == "default"


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


async def test_fused_steps_are_the_engines_when_its_decisions_have_shown_what_they_take(
    control_plane: ControlPlane, known: Telemetry
) -> None:
    call = AdminCalls(control_plane, telemetry=known, predictors=lambda: asking("auto"))
    load = {"decode_bs": 64, "decode_context_tokens": 1024, "prefill_new_tokens": 8192}

    async def fused() -> dict[str, float]:
        return (await call("POST", PATH, json={"tbt_ms": 30} | load)).json()["fused"]

    def margin(told: dict[str, float]) -> float:
        """The worst case over the prediction."""
        return told["worst_ms"] * told["prefill_tokens_per_s"] / told["token_budget"] / 1000.0

    before = await fused()
    assert margin(before) == pytest.approx(1.15, rel=0.001)
    shown = {"mode": "fused", "prefill_layers": 0, "predicted_fused_s": 0.02, "prefill_new_tokens": 508}
    for _ in range(60):
        known.on_message(step(**shown, measured_step_s=0.026, margin_ratio=1.6))
    slower = await fused()
    assert margin(slower) == pytest.approx(
        1.6, rel=0.05
    )  # the size of step that it chooses has its own ratio
    assert slower["token_budget"] < before["token_budget"]
    known.on_message(step(**shown, measured_step_s=0.026, stall_room_s=0.014, margin_ratio=1.6))
    assert (await fused())["token_budget"] < slower["token_budget"], "room is left for a stall"


async def test_it_says_that_steps_are_fixed_for_now_when_predictions_were_wrong(
    control_plane: ControlPlane, known: Telemetry
) -> None:
    call = AdminCalls(control_plane, telemetry=known, predictors=lambda: asking("auto"))
    load = {"decode_bs": 64, "decode_context_tokens": 1024, "prefill_new_tokens": 8192}

    async def text() -> str:
        answer: str = (await call("POST", PATH, json={"tbt_ms": 30} | load)).json()["text"]
        return answer

    shown = {"mode": "fused", "prefill_layers": 0, "predicted_fused_s": 0.02, "prefill_new_tokens": 508}
    known.on_message(step(**shown, measured_step_s=0.02, margin_ratio=1.15))
    before = await text()
    known.on_message(step(**shown, measured_step_s=0.05, reason="predictions_wrong"))
    told = await text()
    assert FIXED_FOR_NOW not in before
    assert told.endswith(f" ms; {FIXED_FOR_NOW}"), "the plan is told as if they were right"


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
