"""What both clients do alike: a call as HTTP, and whether it may be sent again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from pdmuxd.tui.client.api.answers import API
from pdmuxd.tui.client.api.errors import ApiError, NoAnswerError, UnavailableError

TIMEOUT_S = 10.0
RETRIES = 2
RETRY_WAIT_S = 0.2
"""Before the first retry; each further wait is twice as long."""
RETRY_WAIT_MAX_S = 5.0
"""A daemon that asks for a longer wait is not waited for: the caller is told."""
EVENT_SILENCE_S = 15.0
"""The daemon sends something every 5 s; nothing for so long means that the connection is cut."""
READING = frozenset({"GET", "HEAD"})
Token = str | Callable[[], str]


def shows_certificate(url: str) -> bool:
    """Whether the server at this address may show a certificate.

    Where it cannot, those of the authorities are not loaded: that takes 50 ms, at each command of the shell.
    """
    return not url.lower().startswith("http:")


def quoted(text: object) -> str:
    """A part of a path."""
    return quote(str(text), safe="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call, not sent yet. What is None is not sent."""

    method: str
    path: str
    """Below `/api/v1`."""
    query: Mapping[str, object] | None = None
    body: object = None
    if_match: int | str | None = None
    why: str | None = None
    idempotency_key: str | None = None
    last_event_id: str | None = None
    timeout_s: float | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Options as the HTTP library takes them."""
        url = API + self.path
        given = {name: _text(value) for name, value in (self.query or {}).items() if value is not None}
        return {"method": self.method, "url": url, "params": given or None, "json": self.body}

    def headers(self, token: Token, why: str | None) -> list[tuple[bytes, bytes]]:
        """Headers in bytes, as a reason may be in any language."""
        sent = {
            "Authorization": f"Bearer {token if isinstance(token, str) else token()}",
            "If-Match": f'"{self.if_match}"' if isinstance(self.if_match, int) else self.if_match,
            "X-Change-Reason": self.why or why,
            "Idempotency-Key": self.idempotency_key,
            "Last-Event-ID": self.last_event_id,
        }
        return [(name.encode(), text.encode()) for name, text in sent.items() if text is not None]

    def retry_in_s(self, error: ApiError, tried: int, retries: int) -> float | None:
        """Seconds until it is sent again; None if it must not be, or was often enough.

        A call that did not reach the daemon is sent again. One that may have reached it is sent again only if
        that changes nothing twice: it reads, or it has a key, by which the daemon knows it again.
        """
        if tried > retries:
            return None
        wait_s = RETRY_WAIT_S * 2.0 ** (tried - 1)
        is_safe = self.method in READING or self.idempotency_key is not None
        match error:
            case NoAnswerError(was_sent=False):
                return wait_s
            case NoAnswerError():
                return wait_s if is_safe else None
            case UnavailableError():
                wait_s = max(wait_s, error.retry_after_s or 0.0)
                return wait_s if is_safe and wait_s <= RETRY_WAIT_MAX_S else None
        return None


def event_call(types: Iterable[str] | None, after: str | None) -> Call:
    """The call that is answered with events."""
    query = {"types": None if types is None else ",".join(types)}
    return Call(method="GET", path="/events", query=query, last_event_id=after)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
