"""What is remembered of addresses: who was logged lately, and how often each sent a wrong key."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

INTERVAL_S = 60.0
_MAX_REMEMBERED = 4096
"""Addresses. With more, those not seen for longest are forgotten: an attacker may use any number."""
_IPV6_NETWORK_BITS = 64


@dataclass(slots=True)
class _Window:
    begin_s: float
    count: int
    before: int
    """What was counted in the window before."""


class Windows:
    """Counts events by key in windows of a minute, of a bounded number of keys."""

    def __init__(self, clock: Callable[[], float], *, interval_s: float = INTERVAL_S) -> None:
        self._clock = clock
        self._interval_s = interval_s
        self._windows: OrderedDict[Hashable, _Window] = OrderedDict()

    def count(self, key: Hashable) -> tuple[int, int]:
        """Count one event; (events in this window, events that were not the first of the window before)."""
        now_s = self._clock()
        window = self._windows.get(key)
        if window is None or now_s - window.begin_s >= self._interval_s:
            before = 0 if window is None else window.count
            window = self._windows[key] = _Window(now_s, 0, max(0, before - 1))
        self._windows.move_to_end(key)
        if len(self._windows) > _MAX_REMEMBERED:
            self._windows.popitem(last=False)
        window.count += 1
        return window.count, window.before

    def seen(self, key: Hashable) -> int:
        """Events of a key in its present window."""
        window = self._windows.get(key)
        return 0 if window is None or self._clock() - window.begin_s >= self._interval_s else window.count


class AuthFailures:
    """Wrong keys and tokens by address: the first of a minute is logged, more than a limit are slowed down.

    Only wrong ones: a good key is served whatever else its address sends, for it may be a proxy's.
    """

    def __init__(self, max_per_interval: int, clock: Callable[[], float]) -> None:
        self.total = 0
        self._max = max_per_interval
        self._windows = Windows(clock)

    def is_throttled(self, peer: str) -> bool:
        """Whether an address has sent as many wrong keys as it may in a minute."""
        return self._windows.seen(peer) >= self._max

    def count(self, peer: str) -> AuthFailure:
        """Count a wrong key from `peer`."""
        self.total += 1
        count, before = self._windows.count(peer)
        return AuthFailure(is_first=count == 1, unlogged=before, is_throttled=count > self._max)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthFailure:
    """What to do about a wrong key."""

    is_first: bool
    """Whether it is to be logged."""
    unlogged: int
    """Wrong keys of the same address that were counted but not logged."""
    is_throttled: bool


THROTTLED_DELAY_S = 1.0
"""How long a wrong key waits for its answer when its address has sent too many. Its connection makes room for
any other meanwhile."""


def peer_of(address: object) -> str:
    """What is counted as one peer: an IPv4 address, or an IPv6 network of 64 bits.

    One client has a whole such network to choose addresses from.
    """
    host = address[0] if isinstance(address, tuple) and address else ""
    try:
        found = ipaddress.ip_address(str(host).partition("%")[0])
    except ValueError:
        return str(host) or "unknown"
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, _IPV6_NETWORK_BITS), strict=False))
    return str(found)
