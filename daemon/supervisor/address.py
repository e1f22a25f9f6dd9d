"""Where a serving engine is found, and who wants to know."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from pdmuxd.engine.link.messages import EngineStats, Hello, RequestRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineAddress:
    """One running engine's HTTP side."""

    base_url: str
    """Without a slash at the end."""
    api_key: str = field(repr=False)
    models: frozenset[str]


class EngineListener(Protocol):
    """Is told what happens to the engine; called in the event loop, must not block or raise."""

    def on_serving(self, address: EngineAddress) -> None:
        """Requests may be sent to `address`."""

    def on_gone(self, state: str, reason: str) -> None:
        """The last address is no longer valid: `state` is `starting`, `draining` or `down`."""

    def on_hello(self, hello: Hello) -> None:
        """An engine introduced itself."""

    def on_stats(self, stats: EngineStats) -> None:
        """A heartbeat."""

    def on_request(self, record: RequestRecord) -> None:
        """A request ended in the engine."""
