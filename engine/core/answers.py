"""Answers about waiting requests, kept: each of them is asked about at every safe point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

MAX_ANSWERS = 4096
"""Enough for a long queue on a few partitions; with more, all are forgotten."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Seconds by (new tokens, reused tokens, SMs)."""

    _known_s: dict[tuple[int, int, int], float] = field(default_factory=dict)

    def about(
        self, new_tokens: int, reused_tokens: int, sms: int, ask: Callable[[int, int, int], float]
    ) -> float:
        """What `ask` says, or said before."""
        asked = new_tokens, reused_tokens, sms
        known_s = self._known_s.get(asked)
        if known_s is None:
            if len(self._known_s) >= MAX_ANSWERS:
                self._known_s.clear()
            known_s = self._known_s[asked] = ask(new_tokens, reused_tokens, sms)
        return known_s
