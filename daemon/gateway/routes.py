"""The paths of the data plane, as a table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pdmuxd.engine.core.errors import RequestError


class Kind(StrEnum):
    """What the gateway does with a path."""

    HEALTH = "health"
    """Answered here, without a key."""
    MODELS = "models"
    """Passed to the engine as it is."""
    CHAT = "chat"
    COMPLETION = "completion"
    GENERATE = "generate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One path and the single method that it allows."""

    path: str
    method: str
    kind: Kind


ROUTES = {
    route.path: route
    for route in (
        Route(path="/health", method="GET", kind=Kind.HEALTH),
        Route(path="/v1/models", method="GET", kind=Kind.MODELS),
        Route(path="/v1/chat/completions", method="POST", kind=Kind.CHAT),
        Route(path="/v1/completions", method="POST", kind=Kind.COMPLETION),
        Route(path="/generate", method="POST", kind=Kind.GENERATE),
    )
}


def find_route(method: str, path: str) -> Route:
    """The route of a call. Raises: RequestError 404 for an unknown path, 405 for another method."""
    route = ROUTES.get(path)
    if route is None:
        raise RequestError(
            f"there is no such path here; known are {', '.join(ROUTES)}", status=404, code="unknown_path"
        )
    if method != route.method:
        raise RequestError(
            f"{path} takes {route.method}, not {method}",
            status=405,
            code="method_not_allowed",
            allow=route.method,
        )
    return route
