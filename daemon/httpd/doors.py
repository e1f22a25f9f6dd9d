"""Looks at the head of a request first of all: has it a good key, or one wrong key too many?

A look takes microseconds: no task, no application, no log. So wrong keys by the thousand cost little, and a
connection that shows a good key is known for it before its request begins.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Set
from enum import Enum

from pdmuxd.daemon.httpd.peers import AuthFailures

Headers = Iterable[tuple[bytes, bytes]]


class Shown(Enum):
    """What the head of a request shows."""

    GOOD_KEY = "good_key"
    NOTHING = "nothing"
    """No key, or a wrong one that the application answers."""
    TOO_MANY = "too_many"
    """No good key, from an address that has sent too many wrong ones."""


class Door:
    """Guards one listener. `knows` says whether a key or token is good."""

    def __init__(
        self,
        failures: AuthFailures,
        knows: Callable[[str], bool],
        *,
        open_paths: Set[bytes],
        is_trusted: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`open_paths` need no key. A trusted peer carries requests of others: it is never shut out."""
        self.failures = failures
        self._knows = knows
        self.is_trusted = is_trusted
        self._open_paths = open_paths

    def look(self, peer: str, path: bytes, headers: Headers) -> Shown:
        """Decide, and count a wrong key that is refused here."""
        secret = secret_in(headers)
        if secret is not None and self._knows(secret):
            return Shown.GOOD_KEY
        if path in self._open_paths or not self.failures.is_throttled(peer) or self.is_trusted(peer):
            return Shown.NOTHING
        self.failures.count(peer)
        return Shown.TOO_MANY


def secret_in(headers: Headers) -> str | None:
    """The key or token of a request, in any of the forms that the two planes take."""
    given = dict(headers)  # names in lower case, as the parser leaves them
    authorization = given.get(b"authorization")
    if authorization is None:
        secret = given.get(b"x-api-key", b"").strip()
        return secret.decode("latin-1") or None
    scheme, _, value = authorization.partition(b" ")
    if scheme.lower() == b"bearer":
        return value.strip().decode("latin-1") or None
    if scheme.lower() == b"basic":
        try:
            return base64.b64decode(value, validate=True).decode().partition(":")[2] or None
        except (binascii.Error, UnicodeDecodeError):
            return None
    return None
