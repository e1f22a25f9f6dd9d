"""How the emulated engine tells what happens in it; the replay and the server each bring an observer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pdmuxd.engine.core.types import Decision
from pdmuxd.engine.emulator.requests import EmulatedRequest


class EngineObserver(Protocol):
    """Called synchronously, in virtual or wall-clock order. Implementations must not call the engine."""

    def on_first_token(self, request: EmulatedRequest, now_s: float) -> None:
        """The prefill of `request` finished; also called for the first token after a retraction."""

    def on_decode_tokens(self, requests: Iterable[EmulatedRequest], now_s: float) -> None:
        """One decode step gave one token to each of `requests`."""

    def on_end(self, request: EmulatedRequest, now_s: float) -> None:
        """`request.phase` is now one of the three ends."""

    def on_step(self, decision: Decision, start_s: float, end_s: float) -> None:
        """The device work of one decision took from `start_s` to `end_s`."""


class NullObserver:
    """Ignores everything."""

    def on_first_token(self, request: EmulatedRequest, now_s: float) -> None:
        """Ignore."""

    def on_decode_tokens(self, requests: Iterable[EmulatedRequest], now_s: float) -> None:
        """Ignore."""

    def on_end(self, request: EmulatedRequest, now_s: float) -> None:
        """Ignore."""

    def on_step(self, decision: Decision, start_s: float, end_s: float) -> None:
        """Ignore."""
