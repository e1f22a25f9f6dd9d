"""Peers that may say more than clients may: the operator's own routers, named in the settings."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network

from pdmuxd.daemon.httpd.asgi import Scope
from pdmuxd.daemon.httpd.peers import peer_of

_REMEMBERED = 4096


class TrustedPeers:
    """Addresses and networks, separated by commas. An empty list trusts nobody."""

    def __init__(self, networks: str = "") -> None:
        """Read the list. Raises: ValueError for an entry that is no address or network."""
        self._networks = tuple(
            ip_network(each, strict=False) for each in map(str.strip, networks.split(",")) if each
        )
        self._is_within = lru_cache(_REMEMBERED)(self._look_up)

    def sent(self, scope: Scope) -> bool:
        """Whether a call comes from one of them. The connection's address counts, not a header."""
        client = scope.get("client")
        return client is not None and self.has(str(client[0]))

    def has(self, host: str) -> bool:
        """Whether an address, or the first one of an IPv6 network, is one of them."""
        return bool(self._networks) and self._is_within(host)

    def client_of(self, scope: Scope) -> str:
        """The peer whose wrong keys are counted: behind a trusted one the last that its header names.

        A client may write into X-Forwarded-For what it likes; what stands last the router has added.
        """
        if self.sent(scope):
            named = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
            hosts = [part.strip() for part in b",".join(named).decode("latin-1").split(",")]
            for host in reversed(hosts):
                if host and not self.has(host):
                    return peer_of((host,))
        return peer_of(scope.get("client"))

    def _look_up(self, host: str) -> bool:
        try:
            address = ip_address(host.partition("%")[0].partition("/")[0])
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)
