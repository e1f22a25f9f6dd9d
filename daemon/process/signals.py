"""The two requests to stop: the first is polite, the second is not."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class StopRequests:
    """What has been asked for so far."""

    stop: asyncio.Event = field(default_factory=asyncio.Event)
    """Finish what is in flight, then stop."""
    at_once: asyncio.Event = field(default_factory=asyncio.Event)
    """Stop now."""

    def on_signal(self) -> None:
        (self.at_once if self.stop.is_set() else self.stop).set()


@contextlib.contextmanager
def on_hangup(reload: Callable[[], None], *, has_terminal: bool) -> Iterator[None]:
    """Reload on SIGHUP until the block ends; not where a terminal sends it because it is closed."""
    loop = asyncio.get_running_loop()
    if not has_terminal:
        loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        yield
    finally:
        if not has_terminal:
            loop.remove_signal_handler(signal.SIGHUP)


@contextlib.contextmanager
def stop_requests() -> Iterator[StopRequests]:
    """Turn SIGTERM and SIGINT into requests, in the running loop, until the block ends."""
    loop = asyncio.get_running_loop()
    requests = StopRequests()
    for number in SIGNALS:
        loop.add_signal_handler(number, requests.on_signal)
    try:
        yield requests
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
