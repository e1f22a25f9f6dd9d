"""Who has logged in: random ids of cookies, each with the token that it stands for."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

LASTS_S = 12 * 3600.0
"""A working day; the token itself may end sooner."""
MOST = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One login."""

    token: str
    ends_s: float


class Sessions:
    """In memory only: whoever starts `pdmuxd web-console` anew logs in anew."""

    def __init__(self, *, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._found: dict[str, Session] = {}

    def open(self, token: str) -> str:
        """The id for a cookie; the oldest login ends where there are too many."""
        while len(self._found) >= MOST:
            del self._found[next(iter(self._found))]
        session_id = secrets.token_urlsafe(32)
        self._found[session_id] = Session(token=token, ends_s=self._now_s() + LASTS_S)
        return session_id

    def token_of(self, session_id: str | None) -> str | None:
        """The token of a login; None if there is none, or it has ended."""
        found = self._found.get(session_id or "")
        if found is None:
            return None
        if found.ends_s <= self._now_s():
            self.close(session_id)
            return None
        return found.token

    def close(self, session_id: str | None) -> None:
        """Log out."""
        self._found.pop(session_id or "", None)
