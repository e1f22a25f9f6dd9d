"""Sessions: how much time is left to each call, what is refused, and what is kept in memory."""

import pytest

from pdmuxd.daemon.gateway import sessions
from pdmuxd.daemon.gateway.sessions import IDLE_S, SESSION_HEADER, Sessions
from pdmuxd.daemon.httpd.trusted_peers import TrustedPeers
from pdmuxd.engine.core.errors import RequestError
from pdmuxd.engine.core.slo import DEFAULT_SLO, RequestTargets, Slo

WHOLE = Slo(ttft_fixed_s=1.0, ttft_per_1k_new_tokens_s=1.0, tbt_s=0.05, attainment_ratio=0.99, e2e_s=60.0)


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


def call(known, name, *, tenant="a", slo=WHOLE, targets=None):
    scope = {"headers": [] if name is None else [(SESSION_HEADER.encode(), name.encode())]}
    return known.applied(scope, tenant, slo, targets)


def test_a_call_is_planned_for_its_part_of_what_is_left():
    known = Sessions(Clock())
    for _ in range(7):
        call(known, "before")
    assert call(known, "s").e2e_share == 0.25  # eight calls of two sessions: four each, three to come
    assert [call(known, "s").e2e_share for _ in range(4)] == [0.286, 0.333, 0.4, 0.5]
    assert call(known, "alone", tenant="b").e2e_share == 1.0
    for _ in range(20):
        last = call(known, "s")
    assert last.e2e_share == 1.0


def test_each_call_has_what_the_calls_before_have_left():
    clock = Clock()
    known = Sessions(clock)
    assert call(known, "s").e2e_s == 60.0
    clock.now_s += 45.0
    assert call(known, "s") == RequestTargets(e2e_s=15.0)
    assert call(known, "other").e2e_s == 60.0
    assert call(known, "s", tenant="b").e2e_s == 60.0
    clock.now_s += 45.0
    assert call(known, "s").e2e_s == 0.001  # over, and judged so


def test_a_routers_target_is_the_sessions_and_its_other_targets_stay():
    own = RequestTargets(ttft_s=0.5, e2e_s=10.0)
    assert call(Sessions(Clock()), "s", targets=own) == RequestTargets(ttft_s=0.5, e2e_s=10.0)
    assert call(Sessions(Clock()), "s", slo=DEFAULT_SLO, targets=own).e2e_s == 10.0


def test_nothing_is_kept_without_a_name_or_without_a_target():
    known = Sessions(Clock())
    assert call(known, None) is None
    assert call(known, "s", slo=DEFAULT_SLO) is None
    assert len(known) == 0


@pytest.mark.parametrize("name", ["", " ", "a b", "x" * 129, "\x7f", "ü"])
def test_400_when_a_name_is_none(name):
    with pytest.raises(RequestError, match=SESSION_HEADER) as caught:
        call(Sessions(Clock()), name)
    assert (caught.value.status, caught.value.param) == (400, SESSION_HEADER)


def test_a_session_is_forgotten_after_an_hour_without_a_call():
    clock = Clock()
    known = Sessions(clock)
    call(known, "s")
    call(known, "idle")
    clock.now_s += IDLE_S / 2
    call(known, "s")
    clock.now_s += IDLE_S / 2 + 1.0
    call(known, "new")
    assert len(known) == 2
    assert call(known, "idle").e2e_s == 60.0


def test_no_tenant_makes_the_sessions_of_others_be_forgotten(monkeypatch):
    monkeypatch.setattr(sessions, "MOST_OF_TENANT", 3)
    monkeypatch.setattr(sessions, "MOST", 5)
    clock = Clock()
    known = Sessions(clock)
    call(known, "mine", tenant="b")
    for number in range(100):
        call(known, str(number))
    assert len(known) == 4
    clock.now_s += 10.0
    assert call(known, "mine", tenant="b").e2e_s == 50.0
    for tenant in "cdefg":
        call(known, "s", tenant=tenant)
    assert len(known) == 5


@pytest.fixture
def promising(setup):
    setup.gateway._trusted = TrustedPeers("127.0.0.0/8")
    return setup


async def test_the_engine_gets_what_is_left_of_a_session(promising):
    headers = {"x-pdmuxd-e2e-ms": "60000", SESSION_HEADER: "task 1".replace(" ", "-")}
    left = []
    for _ in range(2):
        promising.engine.say(b"{}")
        async with promising.post(headers=headers) as answer:
            assert answer.status == 200
        left.append((await promising.engine.seen.get())["custom_params"]["pdmuxd_e2e_target_s"])
    assert left[0] == 60.0
    assert 30.0 < left[1] < 60.0
    assert SESSION_HEADER not in {name.lower() for name in promising.engine.headers}


async def test_400_when_the_engine_would_get_a_session_without_a_name(promising):
    async with promising.post(headers={SESSION_HEADER: "x" * 200}) as answer:
        assert answer.status == 400
        assert (await answer.json())["error"]["param"] == SESSION_HEADER
    assert promising.engine.seen.empty()
    assert promising.gateway.admission.in_flight == 0
