"""Requests that could only be late are refused at once, where their tenants want that."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from telemetry_feeds import request_record

from pdmuxd.controlplane.tenants.records import TenantRecord
from pdmuxd.daemon.gateway.forecast import FirstTokens, refused_by_engine
from pdmuxd.engine.core.errors import RequestError
from pdmuxd.engine.core.slo import Slo
from pdmuxd.engine.link.messages import TenantQueue, TenantQueues

TARGETS = Slo(ttft_fixed_s=10.0, ttft_per_1k_new_tokens_s=0.0, tbt_s=0.05, attainment_ratio=0.99)


def tenant(name="a", **fields) -> TenantRecord:
    plain = {"enabled": True, "slo": TARGETS, "slo_version": 1, "max_in_flight": 9, "late_action": "refuse"}
    return TenantRecord(name=name, **(plain | fields))


class Rig:
    """1,000 new tokens are a second of prefill."""

    def __init__(self, *tenants: TenantRecord) -> None:
        self.now_s = 100.0
        self.first_tokens = FirstTokens(clock=lambda: self.now_s, speed=lambda tokens: tokens / 1000)
        self.first_tokens.use_tenants(tenants)
        self.sent = 0

    def send(self, who: TenantRecord, seconds: float = 1.0, rid: str | None = None) -> str:
        self.sent += 1
        rid = rid or f"r{self.sent}"
        self.first_tokens.admit(rid, who, round(1000 * seconds))
        return rid

    def forecast_s(self, who: TenantRecord, seconds: float = 1.0) -> float:
        return self.first_tokens.forecast(who, round(1000 * seconds), self.now_s).first_token_s


def test_503_with_what_is_expected_when_the_queue_is_too_long():
    chat = tenant()
    rig = Rig(chat)
    for _ in range(10):
        rig.send(chat)
    with pytest.raises(RequestError) as caught:
        rig.send(chat, 3.5)
    error = caught.value
    assert (error.status, error.code, error.retry_after_s) == (503, "deadline_unreachable", 4)
    assert error.details == {"expected_ttft_ms": 13500, "ttft_target_ms": 10000}
    # Once the queue has gone on for so long, there is room.
    for number in range(1, 5):
        rig.first_tokens.begun(f"r{number}")
    rig.send(chat, 3.5)


def test_a_late_request_is_sent_when_its_tenant_has_it_served():
    chat, patient = tenant(), tenant("b", late_action="serve")
    rig = Rig(chat, patient)
    for _ in range(30):
        rig.send(patient)
    # Two tenants share: of a short queue of its own a tenant waits for no more than twice that.
    assert rig.forecast_s(chat) == 2.0


def test_a_request_that_the_engine_refuses_may_come_again_when_the_queue_lets_it():
    chat = tenant(late_action="serve", max_wait_ms=6000)
    rig = Rig(chat)
    for _ in range(13):
        rig.send(chat, 1.0)
    # 12 s of others are ahead of it; it may wait for 6 s, and is due after 10 s, 1 s of it for itself.
    assert rig.first_tokens.retry_after_s("r13", "max_wait", waited_s=6.0) == 6
    rig.send(chat, 1.0, rid="again")
    assert rig.first_tokens.retry_after_s("again", "deadline_unreachable", waited_s=2.0) == 3
    for number in range(1, 11):
        rig.first_tokens.begun(f"r{number}")
    rig.send(chat, 1.0, rid="later")
    assert rig.first_tokens.retry_after_s("later", "max_wait", waited_s=6.0) == 1


def test_the_longest_wait_is_the_engines_when_the_tenant_names_none():
    patient, other = tenant(late_action="serve"), tenant("b")
    rig = Rig(patient, other)
    for _ in range(40):
        rig.send(patient, 2.0)
    # A minute, which is more than five times the target of 10 s; 78 s are ahead, all of its own tenant.
    assert rig.first_tokens.retry_after_s("r40", "max_wait", waited_s=60.0) == 18


def test_the_queue_is_followed_for_a_while_after_a_refusal_when_nobody_asked_for_it():
    patient = tenant(late_action="serve")
    rig = Rig(patient)
    assert not rig.first_tokens.is_wanted
    assert rig.first_tokens.retry_after_s("unknown", "max_wait", waited_s=4.2) == 5
    assert rig.first_tokens.is_wanted
    rig.send(patient)
    assert rig.forecast_s(patient) == 2.0
    rig.now_s += 601.0
    assert not rig.first_tokens.is_wanted


def test_nothing_is_done_when_no_tenant_refuses():
    patient = tenant(late_action="serve")
    rig = Rig(patient)
    rig.send(patient)
    assert rig.forecast_s(patient) == 1.0


def test_a_request_that_is_late_by_itself_is_left_to_the_engine():
    chat = tenant()
    rig = Rig(chat)
    rig.send(chat, 11.0)


def test_classes_above_are_ahead_and_classes_below_are_not():
    above = tenant("i", priority_class="interactive", late_action="serve")
    below = tenant("b", priority_class="batch", late_action="serve")
    chat = tenant()
    rig = Rig(above, below, chat)
    for _ in range(4):
        rig.send(above)
        rig.send(below)
    assert rig.forecast_s(chat) == 5.0
    assert rig.forecast_s(above) == 5.0
    assert rig.forecast_s(below) == 9.0


def test_what_is_late_already_is_not_ahead():
    chat = tenant()
    rig = Rig(chat)
    late = [rig.send(chat) for _ in range(9)]
    rig.now_s += 10.0
    assert rig.forecast_s(chat) == 1.0
    for rid in late:
        rig.first_tokens.ended(rid)
    assert rig.forecast_s(chat) == 1.0


def test_the_engine_knows_of_answers_that_are_not_streamed_whether_they_have_begun():
    chat = tenant()
    rig = Rig(chat)
    rids = [rig.send(chat) for _ in range(8)]
    rig.first_tokens.on_queues(
        TenantQueues(queues=(TenantQueue(tenant="a", waiting=2, late=0, oldest_wait_s=0.0),))
    )
    assert rig.forecast_s(chat) == pytest.approx(3.0)
    rig.first_tokens.on_queues(TenantQueues(queues=()))
    assert rig.forecast_s(chat) == pytest.approx(1.0)
    for rid in rids:
        rig.first_tokens.ended(rid)
    assert rig.forecast_s(chat) == 1.0


def test_the_pace_is_learned_when_first_tokens_take_longer():
    chat = tenant()
    rig = Rig(chat)
    for _ in range(50):
        rid = rig.send(chat)
        rig.first_tokens.on_request(request_record(request_id=rid, tenant="a", ttft_s=2.0))
        rig.first_tokens.ended(rid)
    assert rig.forecast_s(chat) == pytest.approx(2.0)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["send", "begin", "end", "report", "wait"]), st.integers(0, 2), st.integers(1, 9)
        ),
        max_size=80,
    )
)
def test_nothing_is_ahead_when_all_have_ended(steps):
    classes = ("interactive", "standard", "batch")
    who = [tenant(name, priority_class=classes[i], late_action="serve") for i, name in enumerate("abc")]
    rig, open_ = Rig(*who, tenant("d")), []
    for what, index, number in steps:
        if what == "send":
            open_.append(rig.send(who[index], number / 4))
        elif what == "report":
            queue = TenantQueue(tenant=who[index].name, waiting=number, late=0, oldest_wait_s=0.0)
            rig.first_tokens.on_queues(TenantQueues(queues=(queue,)))
        elif what == "wait":
            rig.now_s += number
        elif open_:
            rid = open_[number % len(open_)]
            (rig.first_tokens.begun if what == "begin" else rig.first_tokens.ended)(rid)
            if what == "end":
                open_.remove(rid)
        assert rig.forecast_s(who[2]) >= 1.0 - 1e-9
    for rid in open_:
        rig.first_tokens.ended(rid)
    assert rig.forecast_s(who[2]) == 1.0


CAUSE = "deadline_unreachable: the engine has not begun this request"


PREAMBLE = b'event: message_start\ndata: {"type":"message_start"}\n\nevent: error\ndata: '
AFTER = b'\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n'


@pytest.mark.parametrize(
    ("answer", "is_refusal"),
    [
        ({"error": {"message": CAUSE, "type": "server_error", "param": None, "code": 503}}, True),
        ({"error": {"message": "too late", "code": "max_wait"}}, True),
        ({"object": "error", "message": CAUSE, "code": 503}, True),
        ({"text": "", "meta_info": {"finish_reason": {"type": "abort", "message": CAUSE}}}, True),
        ({"error": {"message": f"503: {CAUSE}", "code": 400}}, True),
        ({"type": "response.failed", "response": {"error": {"message": CAUSE}}}, True),
        ({"type": "error", "error": {"type": "api_error", "message": CAUSE}}, True),
        ({"type": "response.completed", "response": {"error": None, "output": [CAUSE]}}, False),
        ({"text": CAUSE, "meta_info": {"finish_reason": {"type": "stop"}}}, False),
        ({"choices": [{"text": CAUSE, "message": {"content": CAUSE}}]}, False),
        ({"error": {"message": "a prompt with deadline_unreachable: in it", "code": 400}}, False),
    ],
)
def test_the_engines_refusal_is_known_and_no_text_of_a_model_is_taken_for_one(answer, is_refusal):
    body = json.dumps(answer).encode()
    for form in (body, b"data: " + body + b"\n\ndata: [DONE]\n\n", PREAMBLE + body + AFTER):
        error = refused_by_engine(form, lambda cause: {"deadline_unreachable": 7, "max_wait": 8}[cause])
        assert (error is not None) == is_refusal
        if error is not None:
            assert (error.status, error.retry_after_s) in ((503, 7), (503, 8))
            assert error.code == ("deadline_unreachable" if error.retry_after_s == 7 else "max_wait")


@pytest.mark.parametrize("stream", [False, True])
async def test_503_when_the_engine_refuses_a_request_that_was_sent(setup, make_directory, stream):
    snapshot = make_directory()
    alice = replace(snapshot.tenants["alice"], late_action="refuse")
    setup.gateway.use_directory(replace(snapshot, tenants={**snapshot.tenants, "alice": alice}))
    body = json.dumps({"error": {"message": CAUSE, "code": "deadline_unreachable"}}).encode()
    asking = asyncio.create_task(setup.post(stream=stream).__aenter__())
    await setup.engine.seen.get()
    setup.engine.say(b"data: " + body + b"\n\n" if stream else body)
    setup.engine.end()
    response = await asking
    assert (response.status, response.headers["Retry-After"]) == (503, "1")
    assert (await response.json())["error"]["code"] == "deadline_unreachable"
