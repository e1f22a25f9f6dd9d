"""Finds who asks, by the bearer key; and what the client calls the request."""

from __future__ import annotations

import re

from pdmuxd.controlplane.services.directory import DirectorySnapshot
from pdmuxd.controlplane.tenants.records import Identity
from pdmuxd.daemon.httpd.asgi import Scope, header
from pdmuxd.engine.core.errors import KeyScopeError, RequestError, TenantDisabledError, UnknownKeyError

REQUEST_ID = b"x-request-id"
OWN_REQUEST_ID = b"x-pdmuxd-request-id"
_CLIENT_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")


def client_request_id(scope: Scope) -> str | None:
    """The client's own id of the request; None if there is none, or if it has characters that ids may not
    have."""
    given = header(scope, REQUEST_ID)
    return None if given is None or _CLIENT_ID.fullmatch(given) is None else given.decode("ascii")


def identify(scope: Scope, directory: DirectorySnapshot) -> Identity:
    """The key that the request carries, and its tenant. Raises: RequestError 401 or 403."""
    given = header(scope, b"authorization")
    if given is None:
        # Where clients of Anthropic's API have it.
        secret = (header(scope, b"x-api-key") or b"").strip()
    else:
        scheme, _, secret = given.partition(b" ")
        secret = secret.strip() if scheme.lower() == b"bearer" else b""
    if not secret:
        raise RequestError(
            "an API key is needed: send the header `Authorization: Bearer <key>`",
            status=401,
            code="missing_api_key",
        )
    try:
        return directory.authenticate(secret.decode("latin-1"), scope="serve")
    except UnknownKeyError as error:
        raise RequestError(str(error), status=401, code="invalid_api_key") from None
    except TenantDisabledError as error:
        raise RequestError(str(error), status=403, code="tenant_disabled") from None
    except KeyScopeError as error:
        raise RequestError(str(error), status=403, code="key_scope") from None
