"""What is remembered of addresses: little, and not for long."""

import pytest

from pdmuxd.daemon.httpd.peers import INTERVAL_S, AuthFailures, Windows, peer_of


def test_the_first_failure_of_a_minute_is_logged_and_the_others_are_counted():
    now_s = [0.0]
    failures = AuthFailures(3, lambda: now_s[0])
    seen = [failures.count("a") for _ in range(5)]
    assert [each.is_first for each in seen] == [True, False, False, False, False]
    assert [each.is_throttled for each in seen] == [False, False, False, True, True]
    assert failures.count("b").is_first
    now_s[0] += INTERVAL_S
    later = failures.count("a")
    assert (later.is_first, later.unlogged, later.is_throttled) == (True, 4, False)
    assert failures.total == 7


def test_no_more_addresses_are_remembered_than_a_bound():
    windows = Windows(lambda: 0.0)
    windows.count("first")
    for number in range(10_000):
        windows.count(number)
    assert windows.count("first") == (1, 0)
    assert len(windows._windows) <= 4096


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        (("192.0.2.1", 7), "192.0.2.1"),
        (("::ffff:192.0.2.1", 7, 0, 0), "192.0.2.1"),
        (("2001:db8:1:2:3::4", 7, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 7, 0, 2), "fe80::/64"),
        (None, "unknown"),
    ],
)
def test_peers_are_counted_by_address_and_by_network_of_ipv6(address, peer):
    assert peer_of(address) == peer
