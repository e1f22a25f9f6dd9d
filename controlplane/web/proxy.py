"""Logins by a proxy in front: it says in a header who has logged in with it, such as by OIDC.

Only a connection's own address makes it a trusted proxy. Whoever may open a connection from there can name
anyone, so nothing is trusted unless the settings name both addresses and header.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import Scope

from pdmuxd.controlplane.database.callers import Caller, Role
from pdmuxd.controlplane.web.sessions import Session

NAME_MAX = 100
"""Characters of a name, as the audit keeps them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedProxy:
    """The proxy that is trusted to say who calls, and how it says so."""

    sent: Callable[[Scope], bool]
    """Whether a call comes over a connection from the proxy."""
    header: str
    operators: frozenset[str]
    """Names that may change things; all others only look."""


class ProxyLogins:
    """Logins by a proxy; forms carry a token that is made of the name and of a secret of this process."""

    def __init__(self, proxy: TrustedProxy | None) -> None:
        self._proxy = proxy
        self._secret = secrets.token_bytes(32)

    def find(self, scope: Scope) -> tuple[Caller, Session] | None:
        """The user that the proxy names; None if it is not the proxy, or it names nobody, or two."""
        if self._proxy is None or not self._proxy.sent(scope):
            return None
        named = Headers(scope=scope).getlist(self._proxy.header)
        name = named[0].strip() if len(named) == 1 else ""
        # A comma is where two headers of the name were made one: the client's own may be among them.
        if not name or len(name) > NAME_MAX or not name.isprintable() or "," in name:
            return None
        role: Role = "admin" if name in self._proxy.operators else "reader"
        form_token = hmac.new(self._secret, name.encode(), hashlib.sha256).hexdigest()
        session = Session(secret_sha256="", form_token=form_token, ends_s=float("inf"))
        return Caller(kind="proxy", name=name, role=role), session
