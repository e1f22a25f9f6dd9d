"""Which daemon the console shows, with which token and which clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Where the time comes from: seconds that only grow, and the time of day."""

    monotonic_s: Callable[[], float] = time.monotonic
    frame_s: Callable[[], float] = time.monotonic
    """The clock that paces frames. It is apart so that tests can stop the other clock and let this one run.
    """
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    zone: tzinfo | None = None
    """The time zone of what is shown; None: this machine's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One daemon's admin address. `token` is called at every attempt to connect, as it may be rotated."""

    url: str
    token: Callable[[], str] = field(repr=False)
    console_version: str = ""
    clock: Clock = Clock()
    transport: httpx.AsyncBaseTransport | None = None
    """How HTTP is sent; None: over sockets."""
