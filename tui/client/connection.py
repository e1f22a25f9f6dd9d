"""The state of the connection to the daemon, and what moves it.

    CONNECTING ──hello──▶ LIVE ──cut──▶ AWAY ──▶ (again)
        ├── 401, 403 ──▶ REFUSED ──▶ (again, with the token read anew)
        ├── another API version ──▶ MISMATCH ──▶ (again)
        └── no such route, no daemon of ours ──▶ FOREIGN ──▶ (again)

No state is final: each is followed by another attempt, at `retry_at_s`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from pdmuxd.tui.client.backoff import delay_s


class Link(StrEnum):
    """How the daemon is reached."""

    CONNECTING = "connecting"
    LIVE = "live"
    AWAY = "away"
    REFUSED = "refused"
    MISMATCH = "mismatch"
    FOREIGN = "foreign"


SLOW_RETRY = frozenset({Link.REFUSED, Link.MISMATCH, Link.FOREIGN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Seconds are of the console's own clock."""

    link: Link = Link.CONNECTING
    cause: str = ""
    """Why it is not live, in one line."""
    failures: int = 0
    """Failed attempts in a row."""
    retry_at_s: float | None = None
    lives: int = 0
    """How often the connection has been live."""

    def live(self) -> Connection:
        """The daemon said hello."""
        return Connection(link=Link.LIVE, lives=self.lives + 1)

    def failed(self, link: Link, cause: str, now_s: float) -> Connection:
        """An attempt has failed, or a live connection was cut."""
        failures = self.failures + 1
        wait_s = delay_s(failures, is_refused=link in SLOW_RETRY)
        return replace(self, link=link, cause=cause, failures=failures, retry_at_s=now_s + wait_s)
