"""What a change did: the minute before against the time since, and nothing where that would say nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from telemetry_feeds import (
    HELLO,
    HandClock,
    directory,
    heartbeat,
    predicting,
    request_record,
    step,
    telemetry,
)

from pdmuxd.controlplane.node.engine_status import NO_ENGINE
from pdmuxd.controlplane.outlook.edit_replay import replayed
from pdmuxd.controlplane.telemetry.telemetry import Telemetry


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def known(clock: HandClock) -> Telemetry:
    made = telemetry(clock, chat=0.04, batch=0.2)
    made.on_message(HELLO)
    clock.turn(90.0)
    return made


def serve(known: Telemetry, clock: HandClock, seconds: int, *, late: int = 0, **split: int) -> None:
    """A request of each tenant a second, the first `late` ones of `batch` late; a step of a split."""
    for second in range(seconds):
        ttft_s = 2.0 if second < late else 0.3
        known.on_request(request_record(request_id=f"c{clock.now_s}", ttft_s=0.3))
        known.on_request(request_record(request_id=f"b{clock.now_s}", tenant="batch", ttft_s=ttft_s))
        known.on_message(step(now_s=clock.now_s, **split))
        known.on_message(step(now_s=clock.now_s, mode="decode", prefill_sms=0, decode_sms=132))
        uptime_s, ratio = clock.now_s % 1e6, split.get("prefill_sms", 96) / 200
        known.on_message(heartbeat(uptime_s=uptime_s, sm_busy_prefill_ratio=ratio, sm_busy_decode_ratio=0.2))
        clock.turn(1.0)
        known.tick()


def edit(known: Telemetry, tbt_s: float, version: int = 2) -> None:
    known.on_directory(directory(version, chat=tbt_s, batch=0.2))


def test_before_and_after_are_compared_when_a_minute_has_passed(known: Telemetry, clock: HandClock) -> None:
    serve(known, clock, 60)
    edit(known, 0.03)
    serve(known, clock, 80, late=20, prefill_sms=112, decode_sms=20)
    (effect,) = known.effects.all()
    assert (effect.kind, effect.tenant, effect.text) == ("slo", "chat", "TBT 40 to 30 ms")
    assert (effect.state, effect.is_mixed) == ("measuring", False)
    before, after = effect.before, effect.after
    assert after is not None
    assert (before.sms.prefill_sms, before.sms.decode_sms) == (96.0, 36.0)
    assert (after.sms.prefill_sms, after.sms.decode_sms) == (112.0, 20.0)
    assert before.sms.split_ratio == after.sms.split_ratio == 0.5
    assert before.sms.prefill_busy_ratio == pytest.approx(0.48)
    assert after.sms.prefill_busy_ratio == pytest.approx(0.56)
    assert after.length_s == 80.0
    assert before.tenants["batch"].ttft.attainment_ratio == 1.0
    assert after.tenants["batch"].ttft.attainment_ratio == pytest.approx(0.75)
    assert after.tenants["chat"].ttft.attainment_ratio == 1.0
    assert before.tenants["batch"].ttft_ms.p99 == pytest.approx(300, rel=0.04)
    assert after.tenants["batch"].ttft_ms.p99 == pytest.approx(2000, rel=0.04)
    assert after.tenants["chat"].tbt.judged == 800


def test_nothing_is_compared_when_it_is_too_early(known: Telemetry, clock: HandClock) -> None:
    serve(known, clock, 60)
    edit(known, 0.03)
    serve(known, clock, 59)
    (effect,) = known.effects.all()
    assert (effect.state, effect.after) == ("too_early", None)


def test_the_comparison_ends_when_another_change_comes(known: Telemetry, clock: HandClock) -> None:
    serve(known, clock, 60)
    edit(known, 0.03)
    serve(known, clock, 70)
    edit(known, 0.05, version=3)
    serve(known, clock, 30, late=30)
    known.on_message(replace_policy(clock, "muxwise"))
    last, second, first = known.effects.all()
    assert (first.state, second.state, last.state) == ("measured", "overtaken", "too_early")
    assert first.after is not None
    assert first.after.length_s == 70.0
    assert first.after.tenants["batch"].ttft.attainment_ratio == 1.0
    assert second.after is None
    assert (last.kind, last.tenant, last.is_mixed) == ("policy", None, True)
    assert not second.is_mixed


def replace_policy(clock: HandClock, policy: str):  # type: ignore[no-untyped-def]
    return heartbeat(uptime_s=clock.now_s % 1e6, policy=policy)


def test_a_comparison_is_final_when_five_minutes_have_passed(known: Telemetry, clock: HandClock) -> None:
    serve(known, clock, 60)
    edit(known, 0.03)
    serve(known, clock, 301)
    (final,) = known.effects.all()
    serve(known, clock, 60, late=60)
    assert known.effects.all() == [final]
    assert final.state == "measured"
    assert final.after is not None
    assert final.after.length_s == pytest.approx(300.0, abs=1.0)


def test_an_engines_start_ends_a_comparison_when_it_comes(known: Telemetry, clock: HandClock) -> None:
    serve(known, clock, 60)
    edit(known, 0.03)
    serve(known, clock, 10)
    known.on_message(HELLO)
    serve(known, clock, 100, late=100)
    assert [one.state for one in known.effects.all()] == ["overtaken"]


def test_both_edits_share_what_followed_when_they_came_at_once(known: Telemetry, clock: HandClock) -> None:
    serve(known, clock, 60)
    known.on_directory(directory(2, chat=0.03, batch=0.1))
    serve(known, clock, 61)
    first, second = known.effects.all()
    assert {first.tenant, second.tenant} == {"chat", "batch"}
    assert first.after == second.after
    assert first.state == "measuring"


def test_no_more_than_the_last_are_kept_when_there_are_many(known: Telemetry, clock: HandClock) -> None:
    for number in range(60):
        edit(known, 0.03 + number / 1000, version=2 + number)
        clock.turn(1.0)
    assert len(known.effects.all()) == 17
    many = directory(99, **{f"t{number}": 0.05 for number in range(30)})
    known.on_directory(many)
    changed = {name: replace(one, slo=replace(one.slo, tbt_s=0.06)) for name, one in many.tenants.items()}
    known.on_directory(replace(many, tenants=changed))
    assert known.effects.all()[0].text == "30 tenants were changed at once"


def test_the_minute_before_is_read_a_little_at_a_time_when_many_are_active(
    known: Telemetry, clock: HandClock
) -> None:
    names = [f"t{number:03}" for number in range(100)]
    known.on_directory(directory(3, **dict.fromkeys(names, 0.04)))
    for number, name in enumerate(names):
        for request in range(1 + number % 3):
            known.on_request(request_record(request_id=f"{name}-{request}", tenant=name))
    known.on_directory(directory(4, **{**dict.fromkeys(names, 0.04), "t000": 0.03}))
    assert not known.effects.has_news.is_set(), "it is not told before it is read"
    for _ in range(15):
        clock.turn(0.1)
        known.tick()
    assert known.effects.has_news.is_set()
    (effect,) = known.effects.all()
    counts = [standing.ttft.judged for standing in effect.before.tenants.values()]
    assert (len(counts), counts) == (100, sorted(counts, reverse=True))


def test_the_minute_before_is_whole_when_it_is_asked_for_at_once(known: Telemetry, clock: HandClock) -> None:
    names = [f"t{number:03}" for number in range(100)]
    known.on_directory(directory(3, **dict.fromkeys(names, 0.04)))
    for name in names:
        known.on_request(request_record(request_id=name, tenant=name))
    known.on_directory(directory(4, **{**dict.fromkeys(names, 0.04), "t000": 0.03}))
    assert len(known.effects.all()[0].before.tenants) == 100


def test_requests_that_still_wait_are_counted_late_when_they_are(known: Telemetry, clock: HandClock) -> None:
    serve(known, clock, 60)
    edit(known, 0.03)
    known.on_begin("w", tenant="chat", path="/v1/completions")
    known.on_read("w", is_streamed=True, body_bytes=100, read_s=0.0)
    serve(known, clock, 61)
    (effect,) = known.effects.all()
    assert effect.after is not None
    assert effect.after.tenants["chat"].ttft.missed == 1


def test_a_change_is_replayed_under_both_targets_while_it_is_measured(
    known: Telemetry, clock: HandClock
) -> None:
    known.status = lambda: replace(NO_ENGINE, state="serving", hello=HELLO)
    serve(known, clock, 60)
    strict = replace(directory(2, chat=0.04, batch=0.2).tenants["batch"].slo, ttft_fixed_s=0.01)
    strict = replace(strict, ttft_per_1k_new_tokens_s=0.001)
    snapshot = directory(2, chat=0.04, batch=0.2)
    batch = replace(snapshot.tenants["batch"], slo=strict)
    known.on_directory(replace(snapshot, tenants={**snapshot.tenants, "batch": batch}))
    serve(known, clock, 59)
    assert known.effects.to_replay() == []
    serve(known, clock, 2)
    (effect,) = known.effects.to_replay()
    assert known.effects.to_replay() == [], "it was just given out"
    known.effects.replayed(effect, replayed(effect, known, predicting))
    found = known.effects.all()[0].replay
    assert found is not None
    assert found.why_not is None
    assert found.tenants["batch"].requests == 60
    assert found.tenants["batch"].ttft_before == 1.0
    assert found.tenants["batch"].ttft_after == 0.0
    assert found.tenants["chat"].ttft_before == found.tenants["chat"].ttft_after == 1.0


def test_what_cannot_be_replayed_says_why(known: Telemetry, clock: HandClock) -> None:
    serve(known, clock, 60)
    known.on_message(heartbeat(uptime_s=2.0, policy="chunked:512"))
    serve(known, clock, 62)
    (effect,) = known.effects.to_replay()
    assert effect.was == "chunked:512"
    assert replayed(effect, known, predicting).why_not == (
        "no engine has introduced itself yet, so there is nothing to predict with"
    )
    known.status = lambda: replace(NO_ENGINE, state="serving", hello=HELLO)
    assert replayed(effect, known, predicting).why_not is None
    other = replace(effect, was="gone:policy")
    assert str(replayed(other, known, predicting).why_not).startswith(
        "the policy gone:policy cannot be asked"
    )
    profile = replace(effect, was=None)
    assert "only changes of one tenant's targets" in str(replayed(profile, known, predicting).why_not)
