from __future__ import annotations

import msgspec
import pytest
import scenes
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.tui.client.wire import DecisionEvent, TbtTarget
from pdmuxd.tui.show.decision_filter import DecisionFilter, parse
from pdmuxd.tui.show.lines import Column
from pdmuxd.tui.show.partitions.slider import LEAST_MS, MOST_MS, Slider
from pdmuxd.tui.show.reasons import in_words, sitting_out
from pdmuxd.tui.show.table import Order, moved, scrolled
from pdmuxd.tui.show.words import REASONS


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", DecisionFilter()),
        ("best", DecisionFilter(reason="best")),
        ("Tenant:chat", DecisionFilter(tenant="chat")),
        ("reason:fused tenant:a", DecisionFilter(reason="fused", tenant="a")),
    ],
)
def test_reason_and_tenant_are_understood_when_they_are_typed(text, wanted):
    assert parse(text) == wanted


def test_only_its_reason_is_kept_when_there_is_a_filter():
    decisions = [
        msgspec.convert(scenes.decision(number, reason=reason), DecisionEvent)
        for number, reason in enumerate(("best_fit", "fused_fits", "best_fit"))
    ]
    assert [one.seq for one in DecisionFilter(reason="best").of(decisions)] == [0, 2]
    assert len(DecisionFilter().of(decisions)) == 3


def test_the_reasons_that_were_seen_come_in_turn_when_f_is_pressed():
    wanted = DecisionFilter()
    seen = [
        msgspec.convert(scenes.decision(reason=reason, sitting_out=out), DecisionEvent)
        for reason, out in (("fused_fits", 0), ("best_fit", 3))
    ]
    found = []
    for _ in range(4):
        wanted = wanted.with_next_reason(iter(seen))
        found.append(wanted.reason)
    assert found == ["best_fit", "fused_fits", "sits_out", ""]


def test_decisions_that_leave_some_out_are_kept_when_that_is_asked_for():
    decisions = [
        msgspec.convert(scenes.decision(number, sitting_out=out), DecisionEvent)
        for number, out in enumerate((0, 12, 0))
    ]
    assert [one.seq for one in DecisionFilter(reason="sits_out").of(decisions)] == [1]
    assert [one.seq for one in parse("best").of(decisions)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("count", "whose", "said"),
    [
        (0, None, ""),
        (1, TbtTarget(tenant="chat", tbt_ms=20.0), "1 relaxed sits out for chat's 20 ms"),
        (12, TbtTarget(tenant="chat", tbt_ms=20.0), "12 relaxed sit out for chat's 20 ms"),
        (12, None, "12 relaxed sit out"),
    ],
)
def test_who_sits_out_is_said_with_whose_target_it_is_for(count, whose, said):
    assert sitting_out(count, whose) == said


def test_a_reason_is_said_as_it_is_when_it_is_newer_than_the_console():
    assert in_words("brand_new_reason") == "brand new reason"
    assert in_words(None) == "nothing decided yet"


def test_every_reason_of_the_core_has_words_when_the_core_grows():
    from pdmuxd.engine.core.types import Reason

    assert {str(reason) for reason in Reason} == set(REASONS)


@given(tbt_ms=st.floats(LEAST_MS, MOST_MS), steps=st.integers(-3000, 3000), fine=st.booleans())
def test_the_target_stays_allowed_when_the_slider_is_moved(tbt_ms, steps, fine):
    assert LEAST_MS <= Slider(tbt_ms).moved(steps, fine=fine).tbt_ms <= MOST_MS


@given(width=st.integers(2, 200), share=st.floats(0, 1))
def test_a_click_sets_what_the_track_shows_when_it_is_clicked(width, share):
    cell = round(share * (width - 1))
    found = Slider.at(cell, width)
    assert LEAST_MS <= found.tbt_ms <= MOST_MS
    assert 0 <= found.cell(width) < width
    if found.tbt_ms > 20:  # below, whole milliseconds are wider than a cell
        assert abs(found.cell(width) - cell) <= 1


def test_orders_come_in_turn_when_s_is_pressed():
    columns = (Column("a", 1, key="a"), Column("b", 1), Column("c", 1, key="c"))
    order, found = Order(), []
    for _ in range(5):
        order = order.next(columns)
        found.append((order.key, order.descending))
    assert found == [("a", True), ("a", False), ("c", True), ("c", False), ("", True)]


@given(top=st.integers(0, 99), count=st.integers(0, 99), room=st.integers(1, 40), step=st.integers(-200, 200))
def test_the_cursor_is_visible_when_it_is_moved(top, count, room, step):
    cursor = moved(0, step, count)
    first = scrolled(top, cursor, count, room)
    assert 0 <= first <= max(0, count - room)
    assert cursor == -1 or first <= cursor < first + room
