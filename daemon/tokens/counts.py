"""What became of the scheduler's tokens, over all engines of one daemon."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import StrEnum

from pdmuxd.daemon.tokens.pacing import Pace


class FallbackCause(StrEnum):
    """Why an answer whose tokens came straight from the scheduler went on through the front end."""

    UNREAD = "unread"
    """Its client did not read."""
    LOST = "lost"
    """The engine could not hand over the tokens of a step."""
    DISCONNECTED = "disconnected"
    """The engine or its connection ended, or the engine got another daemon."""
    MISMATCH = "mismatch"
    """The text of tokens was not what the front end said."""


class TokenCounts:
    """Counted in the event loop, read in any thread."""

    def __init__(self) -> None:
        self.tokens = 0
        """For answers that somebody waits for."""
        self.lost_steps = 0
        """Steps whose tokens the engine could not hand over."""
        self.fallbacks: Counter[FallbackCause] = Counter(dict.fromkeys(FallbackCause, 0))
        """Answers; one may have several causes."""
        self.pace = Pace()
        self._held: list[Callable[[], int]] = []

    def hold(self, held_bytes: Callable[[], int]) -> None:
        """Ask `held_bytes` as well, until it is released."""
        self._held.append(held_bytes)

    def release(self, held_bytes: Callable[[], int]) -> None:
        """Ask it no more."""
        if held_bytes in self._held:
            self._held.remove(held_bytes)

    @property
    def held_bytes(self) -> int:
        """Bytes of answers that wait for their clients, now."""
        return sum(ask() for ask in tuple(self._held))
