"""What the daemon has kept fills what a new console has not seen."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import routes
import scenes

from pdmuxd.tui.client.wire import (
    AlarmEvent,
    HistoryOut,
    PastAlarmOut,
    PastAlarmsOut,
    RequestEvent,
    StatsEvent,
)
from pdmuxd.tui.state.marks import Marks
from pdmuxd.tui.state.series import KEPT_S, Series
from pdmuxd.tui.state.tenants import MINUTES_KEPT, TenantPasts

KEPT = msgspec.convert(routes.history(), HistoryOut, strict=False)
NOW_MINUTE = int(scenes.NOW.timestamp() // 60)


def test_minutes_are_the_daemons_when_they_are_over_and_ours_when_they_run():
    pasts = TenantPasts()
    life = msgspec.convert(scenes.request_life(missed=[]), RequestEvent, strict=False)
    pasts.add_request(life)
    pasts.fill("chat", KEPT, scenes.NOW)
    met = pasts.of("chat").met_by_minute(NOW_MINUTE, MINUTES_KEPT)
    assert met[-2] == 1 - 35 / 100
    assert met[-1] == 1 - 1 / 255
    assert pasts.of("chat").gpu_ratio == 3_000_000 / 7_920_000


def test_seconds_before_the_console_are_filled_when_it_has_begun():
    series = Series()
    series.add(msgspec.convert(scenes.stats(), StatsEvent, strict=False), 1000.0)
    series.fill(KEPT, scenes.NOW, 1000.0)
    waiting = series.values(lambda second: second.waiting, 1, 1, 990.0)
    assert waiting == [3 + 35]
    prefill, decode = series.shares(10, 60, 1000.0)[0]
    assert (prefill, decode) == (2_000_000 / 7_920_000, 1_000_000 / 7_920_000)


def test_nothing_that_was_seen_is_lost_when_there_is_no_room_for_more():
    series = Series()
    for number in range(KEPT_S):
        series.add(msgspec.convert(scenes.stats(waiting_total=7), StatsEvent, strict=False), 1000.0 + number)
    series.fill(KEPT, scenes.NOW, 1000.0 + KEPT_S)
    assert series.values(lambda second: second.waiting, 1, 1, 999.0 + KEPT_S) == [7]


def test_marks_are_in_order_when_earlier_ones_are_filled_in():
    marks = Marks()
    marks.fill(KEPT)
    assert [mark.kind for mark in marks.kept] == ["engine", "change"]
    assert marks.kept[0].at == scenes.NOW - timedelta(seconds=1500)


def of_the_day(step_s: int) -> HistoryOut:
    """The same figures, a step apart, up to now."""
    at = [scenes.NOW - timedelta(seconds=step_s * age) for age in range(len(KEPT.at), 0, -1)]
    return msgspec.structs.replace(KEPT, step_s=step_s, at=tuple(at))


def test_a_day_is_shown_by_the_worst_of_each_column_when_it_is_asked_for():
    series = Series()
    series.replace(of_the_day(1200), scenes.NOW, 1_000_000.0)
    columns = series.values(lambda second: second.waiting, 4, 18_000, 1_000_000.0)
    assert columns[-1] == 3 + max(routes.MISSED_OF_100[-5:])
    assert series.shares(1, 86_400, 1_000_000.0) == [(2_000_000 / 7_920_000, 1_000_000 / 7_920_000)]


def test_a_tenants_day_is_beside_its_minutes_when_both_are_known():
    pasts = TenantPasts()
    pasts.fill("chat", KEPT, scenes.NOW)
    pasts.fill_day("chat", of_the_day(600))
    past, end_s = pasts.of("chat"), scenes.NOW.timestamp()
    assert past.met_by_time(end_s, 86_400, 144)[-3:] == [
        *(1 - missed / 100 for missed in routes.MISSED_OF_100[-2:]),
        None,
    ]
    assert past.met_by_time(end_s, 86_400, 144)[0] is None
    assert past.met_by_minute(NOW_MINUTE, MINUTES_KEPT)[-2] == 1 - 35 / 100


def test_alarms_and_changes_are_in_order_when_they_come_from_two_answers():
    marks = Marks()
    marks.fill(KEPT)
    began_at = scenes.NOW - timedelta(seconds=1000)
    alarm = PastAlarmOut(
        kind="late_now", tenant="chat", severity="warning", text="", began_at=began_at, raised_at=began_at
    )
    marks.fill_alarms(PastAlarmsOut(alarms=(alarm,)))
    marks.fill_alarms(PastAlarmsOut(alarms=(alarm,)))
    assert [mark.kind for mark in marks.kept] == ["engine", "alarm", "change"]


def test_what_this_console_saw_itself_is_not_filled_in_again():
    marks = Marks()
    marks.on_alarm(msgspec.convert(scenes.alarm(at=scenes.instant(-900)), AlarmEvent, strict=False))
    marks.fill(KEPT)
    assert [mark.kind for mark in marks.kept] == ["engine", "alarm"]
