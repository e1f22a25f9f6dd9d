"""From a request's bearer key to its tenant."""

from __future__ import annotations

from pdmuxd.controlplane.directory import DirectorySnapshot, Identity
from pdmuxd.daemon.gateway.asgi import Scope, header
from pdmuxd.engine.core.errors import KeyScopeError, RequestError, TenantDisabledError, UnknownKeyError


def identify(scope: Scope, directory: DirectorySnapshot) -> Identity:
    """The key that the request carries, and its tenant. Raises: RequestError 401 or 403."""
    scheme, _, secret = (header(scope, b"authorization") or b"").partition(b" ")
    secret = secret.strip()
    if scheme.lower() != b"bearer" or not secret:
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
