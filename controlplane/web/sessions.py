"""Keeps who has logged in with a browser: random ids of cookies, each with the digest of the token behind it.

In memory only. A login ends by itself, with a logout, with its token, and with the daemon.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from pdmuxd.controlplane.tenants.credentials import digest, is_same_digest

LASTS_S = 12 * 3600.0
"""A working day, as of `pdmuxd web` before."""
MOST = 256
"""As many connections as the admin plane has unless it is told otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One login. `form_token` is in each form of its pages: another site cannot know it."""

    secret_sha256: str
    form_token: str
    ends_s: float

    def knows_form(self, token: str) -> bool:
        """Whether a form came from a page of this login."""
        return is_same_digest(digest(token), digest(self.form_token))


class Sessions:
    """Ids are kept as digests: what this memory holds opens nothing."""

    def __init__(self, *, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._found: dict[str, Session] = {}

    def open(self, secret: str) -> str:
        """The id for a cookie; the oldest login ends where there are too many."""
        while len(self._found) >= MOST:
            del self._found[next(iter(self._found))]
        session_id = secrets.token_urlsafe(32)
        self._found[digest(session_id)] = Session(
            secret_sha256=digest(secret),
            form_token=secrets.token_urlsafe(32),
            ends_s=self._now_s() + LASTS_S,
        )
        return session_id

    def find(self, session_id: str | None) -> Session | None:
        """A login; None if there is none, or it has ended."""
        found = self._found.get(digest(session_id)) if session_id else None
        if found is not None and found.ends_s <= self._now_s():
            self.close(session_id)
            return None
        return found

    def close(self, session_id: str | None) -> None:
        if session_id:
            self._found.pop(digest(session_id), None)
