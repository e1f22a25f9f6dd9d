"""Whether scripts of other pages may call the data plane from a browser."""

from __future__ import annotations

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

_MAX_AGE_S = 600
"""How long a browser need not ask again."""
_TOLD = ("x-request-id", "x-pdmuxd-request-id", "retry-after")
"""Headers of answers that such scripts may read, beside those that all may."""


def with_cors(app: ASGIApp, origins: str) -> ASGIApp:
    """The application for pages of these origins as well; itself if there are none.

    A preflight is answered here, without a key: browsers send none with it. Credentials of the browser's own
    are never allowed: a key stands in a header that the script sets.
    """
    allowed = [each.strip() for each in origins.split(",") if each.strip()]
    if not allowed:
        return app
    return CORSMiddleware(
        app,
        allow_origins=allowed,
        allow_methods=("GET", "HEAD", "POST"),
        allow_headers=("*",),
        expose_headers=_TOLD,
        max_age=_MAX_AGE_S,
    )
