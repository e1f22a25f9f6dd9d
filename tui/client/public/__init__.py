"""A typed client of pdmuxd's REST interface, installed as `pdmuxd.client`.

    from pdmuxd.client import Client

    with Client("http://127.0.0.1:8701", token) as client:
        for tenant in client.iter_tenants():
            print(tenant["name"], tenant["slo"]["tbt_ms"])

`Client` calls and waits, `AsyncClient` is awaited; both have a method for each operation of the interface.
`models` has the types of what is sent and answered.
"""

from __future__ import annotations

from pdmuxd.tui.client.api import models
from pdmuxd.tui.client.api.answers import version_of
from pdmuxd.tui.client.api.async_client import AsyncClient
from pdmuxd.tui.client.api.client import Client
from pdmuxd.tui.client.api.errors import (
    ApiError,
    ConflictError,
    ForbiddenError,
    ForeignError,
    InvalidError,
    NoAnswerError,
    NotFoundError,
    ProblemError,
    StaleVersionError,
    UnauthorizedError,
    UnavailableError,
)
from pdmuxd.tui.client.sse import ServerEvent

__all__ = [
    "ApiError",
    "AsyncClient",
    "Client",
    "ConflictError",
    "ForbiddenError",
    "ForeignError",
    "InvalidError",
    "NoAnswerError",
    "NotFoundError",
    "ProblemError",
    "ServerEvent",
    "StaleVersionError",
    "UnauthorizedError",
    "UnavailableError",
    "models",
    "version_of",
]
