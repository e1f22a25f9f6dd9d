"""When a first token is due, and how fast tokens follow, for a whole answer to be in time."""

from dataclasses import replace

import pytest
from engines import engine, request, run_until_idle
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.engine.core.slo import DEFAULT_SLO, RequestTargets
from pdmuxd.engine.core.whole_answers import LEAST_PACE_SHARE, first_token_due_s, pace_s
from pdmuxd.engine.loop.requests import Target, waiting_entry

seconds, tokens = st.floats(0.001, 1000.0), st.floats(0.0, 10_000.0)


@pytest.mark.parametrize(
    ("e2e_s", "due_s"),
    [
        (30.0, 2.0),  # there is time to spare
        (4.5, 2.0),  # there is just time for 100 tokens at 25 ms, the strictest pace
        (4.0, 1.5),  # the first token has to come sooner
        (2.0, 2.0),  # no first token is soon enough
    ],
)
def test_the_first_token_is_due_early_enough_for_the_rest(e2e_s, due_s):
    found = first_token_due_s(ttft_target_s=2.0, e2e_target_s=e2e_s, tokens=100.0, tbt_s=0.05)
    assert found == pytest.approx(due_s)


@given(seconds, seconds, tokens, st.floats(0.001, 10.0))
def test_a_first_token_is_never_due_later_than_its_own_target_or_before_it_came(ttft_s, e2e_s, count, tbt_s):
    due_s = first_token_due_s(ttft_target_s=ttft_s, e2e_target_s=e2e_s, tokens=count, tbt_s=tbt_s)
    assert 0.0 < due_s <= ttft_s


@pytest.mark.parametrize(
    ("left_s", "share"),
    [(18.0, 1.0), (10.0, 1.0), (8.6, 0.84), (5.0, 0.5), (2.6, 0.5), (0.0, 1.0), (-1.0, 1.0)],
)
def test_tokens_follow_as_fast_as_the_rest_needs(left_s, share):
    assert pace_s(left_s=left_s, tokens=100.0, tbt_s=0.05) == pytest.approx(share * 0.05)


@given(st.floats(-10.0, 1000.0), tokens, st.floats(0.001, 10.0))
def test_no_pace_is_laxer_than_the_target_or_stricter_than_the_least(left_s, count, tbt_s):
    assert LEAST_PACE_SHARE * tbt_s <= pace_s(left_s=left_s, tokens=count, tbt_s=tbt_s) <= tbt_s


@given(st.floats(0.001, 100.0), st.floats(0.001, 100.0), tokens)
def test_an_entry_without_such_a_target_is_as_ever(ttft_s, tbt_s, count):
    given_ = {
        "request_id": "a",
        "tenant": "t",
        "arrival_s": 1.0,
        "ttft_target_s": ttft_s,
        "tbt_target_s": tbt_s,
        "new_tokens": 5,
        "reused_tokens": 0,
        "has_begun": False,
    }
    entry = waiting_entry(Target(slo=DEFAULT_SLO, version=1), **given_, answer_tokens=count)
    assert (entry.deadline_s, entry.ttft_deadline_s) == (1.0 + ttft_s, None)


def test_a_stricter_pace_stops_at_the_tenants_floor():
    slo = replace(DEFAULT_SLO, e2e_s=8.0)
    target = Target(slo=slo, version=1, tbt_floor_s=0.04)
    assert target.pace_s(slo, taken_s=1.0, answer_tokens=100.0) == 0.04
    part = RequestTargets(e2e_s=80.0, e2e_share=0.1)
    own = replace(target, tbt_floor_s=0.0).pace_s(
        part.applied_to(slo), taken_s=1.0, answer_tokens=100.0, own=part
    )
    assert own == pytest.approx(0.59 * 0.05)
    free = replace(target, tbt_floor_s=0.0)
    assert free.pace_s(slo, taken_s=1.0, answer_tokens=100.0) == pytest.approx(0.59 * 0.05)
    assert free.pace_s(DEFAULT_SLO, taken_s=1.0, answer_tokens=100.0) == 0.05


def test_who_has_a_target_of_its_whole_answer_decodes_faster_and_only_it():
    run = engine("auto")
    for number in range(6):  # so that the tenant's answers are known
        run.submit(request(f"before{number}", 50, 100), 0.0)
    run_until_idle(run)
    now_s = run.now_s
    own, other = request("own", 50, 100, arrival_s=now_s), request("other", 50, 100, arrival_s=now_s)
    own.own_targets = RequestTargets(e2e_s=3.0)
    run.submit(own, now_s)
    run.submit(other, now_s)
    run_until_idle(run)
    assert own.e2e_target_s == 3.0
    assert 0.5 * DEFAULT_SLO.tbt_s <= own.planned_tbt_s < DEFAULT_SLO.tbt_s
    assert (own.tbt_target_s, other.planned_tbt_s) == (DEFAULT_SLO.tbt_s, DEFAULT_SLO.tbt_s)


def test_an_edit_puts_the_target_of_a_whole_answer_in_force_and_takes_it_away():
    run = engine("auto")
    waiting = request("a", 50_000, 10, tenant="t")
    run.submit(waiting, 0.0)
    for version, e2e_s in ((1, 5.0), (2, None)):
        slo = replace(DEFAULT_SLO, e2e_s=e2e_s)
        run.apply_settings(version=version, policy="auto", slos={"t": Target(slo=slo, version=version)})
        assert waiting.e2e_target_s == e2e_s
    run_until_idle(run)
    assert waiting.planned_tbt_s == DEFAULT_SLO.tbt_s
