from __future__ import annotations

from pdmuxd.tui.client.backoff import MOST_S, REFUSED_S, delay_s
from pdmuxd.tui.client.connection import Connection, Link


def test_the_wait_doubles_up_to_a_limit_when_attempts_fail():
    assert [delay_s(failures) for failures in range(1, 8)] == [0.5, 1.0, 2.0, 4.0, 8.0, MOST_S, MOST_S]
    assert delay_s(10_000) == MOST_S


def test_the_wait_is_long_at_once_when_the_token_is_refused():
    assert delay_s(1, is_refused=True) == REFUSED_S
    assert Connection().failed(Link.REFUSED, "wrong", 100.0).retry_at_s == 105.0


def test_failures_are_forgotten_when_it_is_live_again():
    connection = Connection().failed(Link.AWAY, "x", 0.0).failed(Link.AWAY, "x", 1.0)
    assert (connection.failures, connection.retry_at_s) == (2, 2.0)
    assert connection.live() == Connection(link=Link.LIVE, lives=1)
