"""Whose headers count: by the address of the connection alone."""

import pytest

from pdmuxd.daemon.httpd.trusted_peers import TrustedPeers


@pytest.mark.parametrize(
    ("networks", "host", "is_trusted"),
    [
        ("", "127.0.0.1", False),
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("192.0.2.7, 10.0.0.0/8", "192.0.2.7", True),
        ("10.0.0.0/8", "::ffff:10.1.2.3", True),
        ("fe80::/10", "fe80::1%eth0", True),
        ("10.0.0.0/8", "2001:db8::1", False),
        ("10.0.0.0/8", "router", False),
    ],
)
def test_the_connection_decides(networks, host, is_trusted):
    assert TrustedPeers(networks).sent({"client": (host, 1)}) is is_trusted


def test_a_connection_without_an_address_is_not_trusted():
    assert not TrustedPeers("0.0.0.0/0").sent({"client": None})
