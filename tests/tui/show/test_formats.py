from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pdmuxd.tui.client.printable import printable
from pdmuxd.tui.show import formats


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0"),
        (999, "999"),
        (999.6, "1.0K"),
        (1234, "1.2K"),
        (34_500, "34K"),
        (2.1e6, "2.1M"),
        (3e9, "3.0G"),
    ],
)
def test_counts_are_short_when_they_are_large(value, text):
    assert formats.count(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (8.13, "8.1"),
        (38.4, "38"),
        (-3.24, "-3.2"),
        (9999, "9999"),
        (12_345, "12.3s"),
        (600_000, "600s"),
    ],
)
def test_milliseconds_are_short_when_they_are_long(value, text):
    assert formats.ms(value) == text


@pytest.mark.parametrize(
    ("ratio", "digits", "text"),
    [
        (None, 0, "-"),
        (1.0, 0, "100%"),
        (0.9999, 0, "99%"),
        (0.9999, 1, "99.9%"),
        (0.993, 1, "99.3%"),
        (-0.4, 0, "-40%"),
    ],
)
def test_nothing_is_called_complete_when_something_is_missing(ratio, digits, text):
    assert formats.percent(ratio, digits) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.42, "0.4 s"), (12, "12 s"), (180, "3 min"), (7500, "2 h 05"), (400_000, "5 d"), (-3, "0.0 s")],
)
def test_ages_have_one_unit_or_two_when_they_grow(seconds, text):
    assert formats.duration(seconds) == text


def test_nothing_reaches_the_terminal_when_text_holds_escapes():
    assert printable("a\x1b[31mb\x00\u202ec") == "a·[31mb··c"


@pytest.mark.parametrize(
    ("text", "value"), [("12", 12.0), (" 1,5 ", 1.5), ("", None), ("nan", None), ("inf", None), ("x", None)]
)
def test_only_numbers_are_taken_when_people_type(text, value):
    assert formats.number(text) == value


def test_the_zone_is_the_readers_when_a_time_is_shown():
    assert formats.clock(datetime(2026, 1, 31, 12, tzinfo=UTC), UTC) == "12:00:00"
    assert formats.clock(None) == "-"


@pytest.mark.parametrize(
    ("at", "said"),
    [
        (datetime(2026, 1, 31, 0, 0, 1, tzinfo=UTC), "00:00:01"),
        (datetime(2026, 1, 30, 23, 59, 59, tzinfo=UTC), "30 Jan"),
        (datetime(2025, 11, 3, tzinfo=UTC), "Nov 2025"),
        (None, "-"),
    ],
)
def test_an_instant_has_its_day_when_it_is_not_of_today(at, said):
    assert formats.moment(at, datetime(2026, 1, 31, 12, tzinfo=UTC), UTC) == said
